package reconcile

// Entries returns the number of a loop's entries for groups, instances, VMs and subnets.
func (l *Loop) Entries() map[string]int {
	out := map[string]int{"resumable": len(l.resumable)}
	out["observed instances"], out["observed groups"], out["absent"] = l.observed.Entries()
	p := l.poller
	p.mu.Lock()
	out["failing questions"] = len(p.failing)
	out["questions"] = p.urgent.due.Len() + len(p.urgent.asked) + p.deletions.due.Len() + len(p.deletions.asked)
	p.mu.Unlock()
	s := l.sweeper
	out["lost"], out["seen orphans"] = s.orphans.Entries()
	out["malformed"] = len(s.reported)
	s.mu.Lock()
	out["removing"], out["claimed"] = len(s.removing), len(s.claimed)
	s.mu.Unlock()
	out["missing subnets"], out["refusals"] = l.launcher.subnets.Entries()
	l.launcher.mu.Lock()
	out["begun"], out["queued"] = len(l.launcher.begun), l.launcher.queue.Waiting()
	l.launcher.mu.Unlock()
	out["due groups"] = l.schedule.Entries()
	out["paced groups"] = l.pacer.Entries()
	out["load balancing"] = l.balancer.Entries()
	return out
}
