package provider

// What only some providers can do is an interface of its own. A provider has such a
// part when it implements the interface, unless it has a method of the part's name
// too, which is then asked: so it may depend on how the provider was configured, and
// a provider that wraps another can pass on what that one has. The provider has all
// of its parts from the start, or never.

// The accessors that a provider may have.
type (
	hasWatcher        interface{ Watcher() (Watcher, bool) }
	hasLeaderNetwork  interface{ LeaderNetwork() (LeaderNetwork, bool) }
	hasSubnetCapacity interface{ SubnetCapacity() (SubnetCapacity, bool) }
	hasImageResolver  interface{ ImageResolver() (ImageResolver, bool) }
	hasLoadBalancer   interface{ LoadBalancer() (LoadBalancer, bool) }
	hasInstanceTypes  interface{ InstanceTypes() (InstanceTypes, bool) }
	hasArgsChecker    interface{ ArgsChecker() (ArgsChecker, bool) }
)

// WatcherOf returns the provider's Watcher; ok is false when it has none.
func WatcherOf(p Provider) (Watcher, bool) {
	return part(p, hasWatcher.Watcher)
}

// LeaderNetworkOf returns the provider's LeaderNetwork; ok is false when it has none.
func LeaderNetworkOf(p Provider) (LeaderNetwork, bool) {
	return part(p, hasLeaderNetwork.LeaderNetwork)
}

// SubnetCapacityOf returns the provider's SubnetCapacity; ok is false when it has none.
func SubnetCapacityOf(p Provider) (SubnetCapacity, bool) {
	return part(p, hasSubnetCapacity.SubnetCapacity)
}

// ImageResolverOf returns the provider's ImageResolver; ok is false when it has none.
func ImageResolverOf(p Provider) (ImageResolver, bool) {
	return part(p, hasImageResolver.ImageResolver)
}

// LoadBalancerOf returns the provider's LoadBalancer; ok is false when it has none.
func LoadBalancerOf(p Provider) (LoadBalancer, bool) {
	return part(p, hasLoadBalancer.LoadBalancer)
}

// InstanceTypesOf returns the provider's InstanceTypes; ok is false when it has none.
func InstanceTypesOf(p Provider) (InstanceTypes, bool) {
	return part(p, hasInstanceTypes.InstanceTypes)
}

// ArgsCheckerOf returns the provider's ArgsChecker; ok is false when it has none.
func ArgsCheckerOf(p Provider) (ArgsChecker, bool) {
	return part(p, hasArgsChecker.ArgsChecker)
}

// part asks p by the accessor, if p has that method, and else takes p itself.
func part[T, A any](p Provider, accessor func(A) (T, bool)) (found T, ok bool) {
	if a, has := p.(A); has {
		return accessor(a)
	}
	found, ok = p.(T)
	return found, ok
}
