package reconcile

// Entries counts what a loop keeps for single groups, instances, VMs and subnets.
func (l *Loop) Entries() map[string]int {
	out := map[string]int{"resumable": len(l.resumable)}
	o := l.observed
	o.mu.Lock()
	out["observed instances"], out["observed groups"], out["absent"] = len(o.instances), len(o.groups), len(o.absent)
	o.mu.Unlock()
	p := l.poller
	p.mu.Lock()
	out["failing questions"] = len(p.failing)
	out["questions"] = len(p.urgent.due) + len(p.urgent.asked) + len(p.deletions.due) + len(p.deletions.asked)
	p.mu.Unlock()
	s := l.sweeper
	out["lost"], out["seen orphans"], out["malformed"] = len(s.orphans.lost), len(s.orphans.sweeps), len(s.reported)
	s.mu.Lock()
	out["removing"], out["claimed"] = len(s.removing), len(s.claimed)
	s.mu.Unlock()
	n := l.launcher.subnets
	n.mu.Lock()
	out["missing subnets"], out["refusals"] = len(n.reported), len(n.rooms.refused)
	n.mu.Unlock()
	l.launcher.mu.Lock()
	out["begun"], out["queued"] = len(l.launcher.begun), len(l.launcher.queue.waiting)+len(l.launcher.queue.turn)
	l.launcher.mu.Unlock()
	l.schedule.mu.Lock()
	out["due groups"] = len(l.schedule.due) + len(l.schedule.marked) + len(l.schedule.later)
	l.schedule.mu.Unlock()
	l.pacing.mu.Lock()
	out["paced groups"] = len(l.pacing.groups)
	l.pacing.mu.Unlock()
	out["load balancing"] = l.balancer.Entries()
	return out
}
