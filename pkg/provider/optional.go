package provider

// Optional features are separate interfaces. A provider has a feature if it implements the
// interface. If it also has an accessor method for the feature, the accessor decides: so a
// feature can depend on the provider's configuration, and a wrapper can pass on the features of
// what it wraps. A provider's features never change.

// Accessors that a provider may have.
type (
	hasWatcher        interface{ Watcher() (Watcher, bool) }
	hasLeaderNetwork  interface{ LeaderNetwork() (LeaderNetwork, bool) }
	hasSubnetCapacity interface{ SubnetCapacity() (SubnetCapacity, bool) }
	hasImageResolver  interface{ ImageResolver() (ImageResolver, bool) }
	hasLoadBalancer   interface{ LoadBalancer() (LoadBalancer, bool) }
	hasInstanceTypes  interface{ InstanceTypes() (InstanceTypes, bool) }
	hasArgsChecker    interface{ ArgsChecker() (ArgsChecker, bool) }
)

// WatcherOf returns the provider's Watcher; ok is false if it has none.
func WatcherOf(p Provider) (Watcher, bool) {
	return part(p, hasWatcher.Watcher)
}

// LeaderNetworkOf returns the provider's LeaderNetwork; ok is false if it has none.
func LeaderNetworkOf(p Provider) (LeaderNetwork, bool) {
	return part(p, hasLeaderNetwork.LeaderNetwork)
}

// SubnetCapacityOf returns the provider's SubnetCapacity; ok is false if it has none.
func SubnetCapacityOf(p Provider) (SubnetCapacity, bool) {
	return part(p, hasSubnetCapacity.SubnetCapacity)
}

// ImageResolverOf returns the provider's ImageResolver; ok is false if it has none.
func ImageResolverOf(p Provider) (ImageResolver, bool) {
	return part(p, hasImageResolver.ImageResolver)
}

// LoadBalancerOf returns the provider's LoadBalancer; ok is false if it has none.
func LoadBalancerOf(p Provider) (LoadBalancer, bool) {
	return part(p, hasLoadBalancer.LoadBalancer)
}

// InstanceTypesOf returns the provider's InstanceTypes; ok is false if it has none.
func InstanceTypesOf(p Provider) (InstanceTypes, bool) {
	return part(p, hasInstanceTypes.InstanceTypes)
}

// ArgsCheckerOf returns the provider's ArgsChecker; ok is false if it has none.
func ArgsCheckerOf(p Provider) (ArgsChecker, bool) {
	return part(p, hasArgsChecker.ArgsChecker)
}

// part returns what p's accessor returns, or p itself if it has no accessor.
func part[T, A any](p Provider, accessor func(A) (T, bool)) (found T, ok bool) {
	if a, has := p.(A); has {
		return accessor(a)
	}
	found, ok = p.(T)
	return found, ok
}
