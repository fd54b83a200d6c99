#!/bin/sh
# MariaDB in the place of the image mysql: at the first start it makes the data in /var/lib/mysql, with the password of
# MYSQL_ROOT_PASSWORD for root from everywhere; then this process becomes the server. Any other program is just run.
set -eu
case ${1:-} in
'' | -*) ;;
mysqld) shift ;;
*) exec "$@" ;;
esac
data=/var/lib/mysql
new=$data/.new
settings=$(dirname "$0")/my.cnf
# The settings include the last of these, which must exist.
mkdir -p /run/mysqld "$data" /etc/mysql/conf.d
if [ ! -d "$data/mysql" ]; then
    if [ -z "${MYSQL_ROOT_PASSWORD:-}" ]; then
        echo "Database is uninitialized and password option is not specified: set MYSQL_ROOT_PASSWORD" >&2
        exit 1
    fi
    # A start that was killed may have left it.
    rm -rf "$new"
    echo "Initializing database files"
    mariadb-install-db --defaults-file="$settings" --datadir="$new" --skip-test-db --skip-name-resolve \
        --auth-root-authentication-method=normal --skip-log-bin >/dev/null
    # No server answers before the password is set.
    password=$(printf %s "$MYSQL_ROOT_PASSWORD" | sed "s/[\\\\']/\\\\&/g")
    mariadbd --defaults-file="$settings" --datadir="$new" --bootstrap <<END
FLUSH PRIVILEGES;
DELETE FROM mysql.global_priv WHERE User = '' OR (User = 'root' AND Host <> 'localhost');
FLUSH PRIVILEGES;
ALTER USER root@localhost IDENTIFIED BY '$password';
CREATE USER root@'%' IDENTIFIED BY '$password';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
END
    # Last comes the folder that says that there is a database.
    for file in "$new"/*; do
        [ "$file" != "$new/mysql" ] || continue
        rm -rf "$data/${file##*/}"
        mv "$file" "$data"
    done
    mv "$new/mysql" "$data"
    rm -rf "$new"
    echo "Database files initialized"
fi
exec mariadbd --defaults-file="$settings" "$@" --bind-address="$KUBEBID_POD_IP"
