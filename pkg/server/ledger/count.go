package ledger

import "github.com/nstance/nstance/pkg/fleet"

// Count is the number of instances that are not deleted.
type Count struct {
	Active  int // pending or running
	Leaving int // draining or being deleted
}

// All returns the total.
func (c Count) All() int { return c.Active + c.Leaving }

func (c *Count) add(p fleet.Phase) {
	switch {
	case p.Active():
		c.Active++
	case p != fleet.Deleted:
		c.Leaving++
	}
}

// Counts are the counts of a tenant's instances at one moment.
type Counts struct {
	Managed  map[string]Count // by group, without on-demand instances
	OnDemand Count
}

// Counts counts the instances of a tenant.
func (l *Ledger) Counts(tenant string) Counts {
	all := Counts{Managed: map[string]Count{}}
	l.records.mu.RLock()
	defer l.records.mu.RUnlock()
	for key, members := range l.index.groups {
		if key.Tenant != tenant {
			continue
		}
		managed := Count{}
		for _, i := range members {
			if i.OnDemand {
				all.OnDemand.add(i.Phase)
			} else {
				managed.add(i.Phase)
			}
		}
		all.Managed[key.Name] = managed
	}
	return all
}
