package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
)

type besiegedSettings struct {
	Kit      string        `json:"kit"`
	Agents   []string      `json:"agents"` // addresses of all servers
	Interval time.Duration `json:"interval"`
	Healthy  int           `json:"healthy"` // this many of the kit's instances, the first ones, stay healthy
}

// besieged are the agents of a server under attack.
type besieged struct {
	*stage
	settings besiegedSettings
	all      int

	mu       sync.Mutex
	stops    map[fleet.InstanceID]context.CancelFunc
	reported int
	lost     int
	next     string                    // the server whose new agents are counted; empty: none
	again    map[fleet.InstanceID]bool // healthy ones that have reported to it
}

// playBesieged runs an agent for every instance of the kit.
func playBesieged(ctx context.Context, s *stage) error {
	p := &besieged{stage: s, stops: map[fleet.InstanceID]context.CancelFunc{}}
	if err := s.read(&p.settings); err != nil {
		return err
	}
	k, err := readKit(p.settings.Kit)
	if err != nil {
		return err
	}
	ca, err := k.ca()
	if err != nil {
		return err
	}
	p.all = len(k.Instances)
	var work sync.WaitGroup
	for n, id := range k.Instances {
		pair, err := issue(ca.IssueAgent, id)
		if err != nil {
			return err
		}
		a := simulated{
			id: id, addrs: p.settings.Agents, interval: p.settings.Interval,
			observe:  func(e agent.Event) { p.observe(id, n < p.settings.Healthy, e) },
			endpoint: pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(pki.NewBundle(ca.Certificate()), pair), Now: time.Now},
		}
		own, stop := context.WithCancel(ctx)
		p.mu.Lock()
		p.stops[id] = stop
		p.mu.Unlock()
		work.Go(func() { _ = a.hold(own) }) // fails for invalid settings only, and then nothing connects
	}
	for command := range s.commands {
		p.do(command)
	}
	work.Wait()
	return nil
}

func (p *besieged) do(command string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	verb, object, _ := strings.Cut(command, " ")
	switch verb {
	case "drop":
		if stop := p.stops[fleet.InstanceID(object)]; stop != nil {
			stop()
		}
	case "lost":
		p.tell(event{Kind: verb, Value: float64(p.lost)})
	case "back":
		p.tell(event{Kind: verb, Value: float64(len(p.again))})
	case "again":
		p.next, p.again = object, map[fleet.InstanceID]bool{}
	}
}

func (p *besieged) observe(id fleet.InstanceID, healthy bool, e agent.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Kind == agent.Disconnected && healthy:
		p.lost++
	case e.Kind == agent.Reported && e.Sequence == 1:
		if p.reported++; p.reported == p.all {
			p.tell(event{Kind: "connected"})
		}
	case e.Kind == agent.Reported && e.Server == p.next && healthy && !p.again[id]:
		if p.again[id] = true; len(p.again) == p.settings.Healthy {
			p.tell(event{Kind: "reconnected"})
		}
	}
}
