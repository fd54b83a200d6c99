# Runs a throw-away Kubernetes control plane in a folder of its own until standard input ends, which it also does
# when the test process dies. Says "ready FOLDER" once it answers. Then it reads orders, "stop PROGRAM" and "restart
# PROGRAM", one a line, and says "done" after each, or ends when it cannot.
# Arguments: the folder of the programs, the API server's port, kwok's configuration, and after how many seconds
# without a lease a node is Unknown.
set -eu
bin=$1
port=$2
stages=$3
grace=$4
url=https://127.0.0.1:$port
# A Ctrl-C is for the tests; their end is ours.
trap '' INT
dir=$(mktemp -d /tmp/kubebid-plane.XXXXXX)
finish() {
    for file in "$dir"/*.pid; do
        # At once: what it holds is thrown away.
        kill -KILL "$(cat "$file")" 2>/dev/null || true
    done
    wait
    rm -rf "$dir"
}
trap finish EXIT
# kubectl keeps what it learns here, and takes no habits of the user's.
export HOME="$dir"

# The programs are written in Go. A larger heap costs less processor time for garbage collection, a third of it otherwise.
export GOGC=400

# Starts a program, which also ends when this shell is killed.
run() {
    name=$1
    shift
    setpriv --pdeathsig KILL "$bin/$name" "$@" >>"$dir/$name.log" 2>&1 </dev/null &
    echo $! >"$dir/$name.pid"
}

start() {
    case $1 in
    etcd)
        # It must have addresses to tell other members, of which there are none.
        run etcd --name plane --data-dir "$dir/etcd" --unsafe-no-fsync --log-level warn \
            --listen-client-urls "unix://$dir/etcd.sock" --advertise-client-urls http://localhost:1 \
            --listen-peer-urls "unix://$dir/peer.sock" --initial-advertise-peer-urls http://localhost:1 \
            --initial-cluster plane=http://localhost:1
        ;;
    kube-apiserver)
        run kube-apiserver --etcd-servers "unix://$dir/etcd.sock" \
            --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --secure-port "$port" \
            --cert-dir "$dir" --token-auth-file "$dir/tokens.csv" --authorization-mode Node,RBAC \
            --enable-admission-plugins OwnerReferencesPermissionEnforcement \
            --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$dir/accounts.key" \
            --service-account-signing-key-file "$dir/accounts.key" \
            --audit-policy-file "$dir/audit.yaml" --audit-log-path "$dir/audit.log" \
            --service-cluster-ip-range 10.0.0.0/24 --endpoint-reconciler-type none --profiling=false
        answers kube-apiserver readyz
        ;;
    kube-controller-manager)
        # The slow rates of taints and calls protect large clusters; in a test they would only make it wait.
        run kube-controller-manager --kubeconfig "$dir/kubeconfig" --use-service-account-credentials \
            --service-account-private-key-file "$dir/accounts.key" --root-ca-file "$dir/apiserver.crt" \
            --leader-elect=false --secure-port 0 --profiling=false \
            --node-monitor-period 1s --node-monitor-grace-period "${grace}s" --node-startup-grace-period "${grace}s" \
            --node-eviction-rate 1000 --secondary-node-eviction-rate 1000 --kube-api-qps 1000 --kube-api-burst 1000
        answers kube-controller-manager api/v1/namespaces/default/serviceaccounts/default
        ;;
    kube-scheduler)
        run kube-scheduler --kubeconfig "$dir/kubeconfig" --leader-elect=false --secure-port 0 --profiling=false \
            --kube-api-qps 1000 --kube-api-burst 1000
        ;;
    kwok)
        # It renews a lease after a quarter of its time: thrice in the grace. Nodes with the label have a kubelet.
        run kwok --kubeconfig "$dir/kubeconfig" --config "$dir/kwok.yaml" \
            --manage-nodes-with-label-selector '!testplane.kubebid.io/kubelet' \
            --node-lease-duration-seconds $((grace * 4 / 3)) --node-ip 127.0.0.1
        ;;
    *)
        echo "there is no $1" >&2
        return 1
        ;;
    esac
}

# Waits until the API server answers this path with success, or the program has ended. curl asks a hundred times at the cost of one
# kubectl.
answers() {
    tries=0
    until curl --silent --fail --insecure --max-time 5 --output "$dir/answer" --header "Authorization: Bearer $token" "$url/$2"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 3000 ] || ! kill -0 "$(cat "$dir/$1.pid")" 2>/dev/null; then
            echo "$1: $url/$2 does not answer: $(cat "$dir/answer" 2>/dev/null)" >&2
            tail -n 20 "$dir/$1.log" >&2
            return 1
        fi
        sleep 0.05
    done
}

stop() {
    kill -KILL "$(cat "$dir/$1.pid")" || true
    wait "$(cat "$dir/$1.pid")" || true
    rm "$dir/$1.pid"
}

read -r token </proc/sys/kernel/random/uuid
echo "$token" >"$dir/token"
printf '%s,admin,admin,"system:masters"\n' "$token" >"$dir/tokens.csv"
printf '%s' "$stages" >"$dir/kwok.yaml"
openssl ecparam -name prime256v1 -genkey -noout -out "$dir/accounts.key"
cat >"$dir/kubeconfig" <<END
apiVersion: v1
kind: Config
current-context: plane
clusters: [{name: plane, cluster: {server: "$url", certificate-authority: "$dir/apiserver.crt"}}]
users: [{name: admin, user: {token: "$token"}}]
contexts: [{name: plane, context: {cluster: plane, user: admin}}]
END
cat >"$dir/audit.yaml" <<END
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ["system:serviceaccounts:kube-system"]}
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
END
start etcd
start kube-apiserver
start kube-scheduler
start kwok
start kube-controller-manager
echo "ready $dir"
while read -r order name; do
    if [ -e "$dir/$name.pid" ]; then
        stop "$name"
    fi
    if [ "$order" = restart ]; then
        start "$name"
    fi
    echo done
done
