//! Conversion of Caches between their versions. The version that is stored is the hub.

use crate::api::{Engine, v1alpha1, v1beta1};
use kubebid_webhook::conversion::{Conversions, Converter, Version};

impl Version for v1beta1::Cache {
    type Hub = v1beta1::Cache;

    fn to_hub(self) -> v1beta1::Cache {
        self
    }

    fn from_hub(hub: v1beta1::Cache) -> Self {
        hub
    }

    // Fewer than three replicas stay highly available: a client of v1alpha1 that scales takes no protection away.
    fn is_valid(&self) -> bool {
        self.spec.engine != Engine::Memcached || !self.spec.is_highly_available()
    }
}

impl Version for v1alpha1::Cache {
    type Hub = v1beta1::Cache;

    fn to_hub(self) -> v1beta1::Cache {
        let spec = v1beta1::CacheSpec {
            engine: self.spec.engine,
            memory: self.spec.memory,
            replicas: Some(self.spec.replicas),
            eviction_policy: self.spec.eviction_policy,
            tls: self.spec.tls,
            high_availability: None,
        };
        v1beta1::Cache { metadata: self.metadata, spec, status: self.status }
    }

    fn from_hub(hub: v1beta1::Cache) -> Self {
        let spec = v1alpha1::CacheSpec {
            replicas: hub.spec.replicas(),
            engine: hub.spec.engine,
            memory: hub.spec.memory,
            eviction_policy: hub.spec.eviction_policy,
            tls: hub.spec.tls,
        };
        v1alpha1::Cache { metadata: hub.metadata, spec, status: hub.status }
    }
}

/// Returns the conversions.
pub fn conversions() -> Conversions {
    Conversions::new().kind(Converter::new().version::<v1alpha1::Cache>().version::<v1beta1::Cache>())
}
