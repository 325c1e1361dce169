package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// population runs an agent for every VM that is created.
type population struct {
	ctx    context.Context
	end    context.CancelFunc
	logger *slog.Logger
	work   sync.WaitGroup

	mu      sync.Mutex
	members map[fleet.InstanceID]*member
	taken   []*member
}

// member is one agent, and the way to stop it.
type member struct {
	*simulated
	stop     context.CancelFunc
	reported bool // in front of the population's lock
}

func newPopulation(ctx context.Context, logger *slog.Logger) *population {
	ctx, end := context.WithCancel(ctx)
	return &population{ctx: ctx, end: end, logger: logger, members: map[fleet.InstanceID]*member{}}
}

// born starts the agent of a new VM.
func (p *population) born(spec provider.Spec) {
	ctx, stop := context.WithCancel(p.ctx)
	m := &member{simulated: &simulated{id: spec.ID}, stop: stop}
	m.observe = func(e agent.Event) {
		if e.Kind == agent.Reported {
			p.mu.Lock()
			m.reported = true
			p.mu.Unlock()
		}
	}
	p.mu.Lock()
	p.members[spec.ID] = m
	p.mu.Unlock()
	p.work.Go(func() {
		if err := m.boot(ctx, spec); err != nil && ctx.Err() == nil {
			p.logger.Error("agent did not start", slog.String("instance", string(spec.ID)), slog.Any("error", err))
		}
	})
}

// reporting counts the agents that have sent a report.
func (p *population) reporting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, m := range p.members {
		if m.reported {
			n++
		}
	}
	return n
}

// take removes and returns any agent that has reported. It may be stopped, and ends with
// the others otherwise. nil: none has reported.
func (p *population) take() *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, m := range p.members { // in any order: it is to be a random one
		if m.reported {
			delete(p.members, id)
			p.taken = append(p.taken, m)
			return m
		}
	}
	return nil
}

// close ends all agents at once, those that were taken too, without a word of goodbye.
func (p *population) close() {
	p.mu.Lock()
	for _, m := range p.members {
		m.die()
	}
	for _, m := range p.taken {
		m.die()
	}
	p.mu.Unlock()
	p.end()
	p.work.Wait()
}
