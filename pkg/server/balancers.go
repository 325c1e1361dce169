package server

// loadBalancers are the targets of the load balancers that the config defines, by
// their names.
func (t *term) loadBalancers() map[string][]string {
	defined := t.static.shard().LoadBalancers
	targets := make(map[string][]string, len(defined))
	for name, lb := range defined {
		targets[name] = lb.TargetGroupARNs
	}
	return targets
}
