package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	siegeHealthy = 1000
	// siegeReports is the interval of the agents' reports here, short enough to notice a late one.
	siegeReports = 5 * time.Second
	siegeRSS     = 2
	siegeSlower  = 3
	// siegeDeaths is the interval at which machines die during an attack.
	siegeDeaths = 2 * time.Second
	// siegePause separates two attacks, so that the first one's effects end.
	siegePause = 15 * time.Second
	// siegeLead is how long the last attack runs before the leader is killed.
	siegeLead = 5 * time.Second
	// siegePatience bounds the wait for reconnecting agents.
	siegePatience = 2 * time.Minute
)

// phase has the observations of the server during one attack, or without one.
type phase struct {
	lost     int
	late     time.Duration
	replaced spread
	rss      float64 // MiB, maximum
	attempts int
	refused  int // an operator's calls without an answer
}

// measureSiege observes a server with a thousand agents without an attack, under each attack, and
// while its leader is killed under one.
func measureSiege(ctx context.Context, b *bench) ([]figure, error) {
	s, err := b.newSiege(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	quiet, err := s.watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("quiet: %w", err)
	}
	out := []figure{
		newFigure("siege_quiet_report_late", quiet.late.Seconds(), "s", siegeHealthy),
		newFigure("siege_quiet_replacement_p99", milliseconds(quiet.replaced.p99()), "ms", len(quiet.replaced)),
		newFigure("siege_quiet_rss", quiet.rss, "MiB", siegeHealthy),
	}
	for _, attack := range attackNames() {
		seen, err := s.under(ctx, attack)
		if err != nil {
			return out, fmt.Errorf("%s: %w", attack, err)
		}
		figures := seen.figures(attack, quiet)
		for _, f := range figures {
			b.say("  %s", f)
		}
		out = append(out, figures...)
		if err := retry.Wait(ctx, min(siegePause, b.siegeTime)); err != nil {
			return out, err
		}
	}
	f, err := s.failover(ctx)
	if err != nil {
		return out, fmt.Errorf("failover: %w", err)
	}
	return append(out, f), nil
}

func (p phase) figures(attack string, quiet phase) []figure {
	name := "siege_" + attack
	return []figure{
		newFigure(name+"_agents_lost", float64(p.lost), "agents", siegeHealthy).atMost(0).noted("%d attempts of the attackers", p.attempts),
		newFigure(name+"_report_late", p.late.Seconds(), "s", siegeHealthy).atMost(1).
			noted("%d questions of an operator had no answer", p.refused),
		newFigure(name+"_replacement_p99", ratio(milliseconds(p.replaced.p99()), milliseconds(quiet.replaced.p99())),
			"× quiet", len(p.replaced)).
			atMost(siegeSlower).noted("%.1f ms", milliseconds(p.replaced.p99())),
		newFigure(name+"_rss", ratio(p.rss, quiet.rss), "× quiet", siegeHealthy).atMost(siegeRSS).noted("%.0f MiB", p.rss),
	}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// under observes the server during an attack.
func (s *siege) under(ctx context.Context, attack string) (phase, error) {
	attackers, err := s.attack(ctx, attack, s.addrs[:1])
	if err != nil {
		return phase{}, err
	}
	defer attackers.stop(10 * time.Second)
	seen, err := s.watch(ctx)
	if err != nil {
		return seen, err
	}
	count, err := attackers.ask(ctx, "count", 30*time.Second)
	seen.attempts = int(count.Value)
	return seen, err
}

// watch observes the server for the duration of an attack.
func (s *siege) watch(ctx context.Context) (seen phase, err error) {
	before, err := s.lost(ctx)
	if err != nil {
		return seen, err
	}
	death := time.Now()
	for end := time.Now().Add(s.bench.siegeTime); time.Now().Before(end); {
		late, err := s.late(ctx)
		if err != nil {
			seen.refused++
		}
		seen.late = max(seen.late, late)
		rss, err := s.leader.rss(ctx)
		if err != nil {
			return seen, err
		}
		seen.rss = max(seen.rss, rss)
		if !time.Now().Before(death) {
			death = death.Add(siegeDeaths)
			took, err := s.strike(ctx)
			if err != nil {
				return seen, err
			}
			seen.replaced = append(seen.replaced, took)
		}
		if err := retry.Wait(ctx, 200*time.Millisecond); err != nil {
			return seen, err
		}
	}
	after, err := s.lost(ctx)
	seen.lost = after - before
	return seen, err
}

// lost returns how often healthy agents have lost their streams so far.
func (s *siege) lost(ctx context.Context) (int, error) {
	e, err := s.agents.ask(ctx, "lost", 10*time.Second)
	return int(e.Value), err
}

// late returns by how much the last report of any healthy agent is overdue, as the server sees it.
func (s *siege) late(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	asked := time.Now()
	reports, err := s.operator.reports(ctx)
	if err != nil {
		return 0, err
	}
	var worst time.Duration
	for _, id := range s.healthy {
		worst = max(worst, asked.Sub(reports[id])-siegeReports)
	}
	return worst, nil
}

// strike stops the machine of an agent that is not among the healthy ones and returns the time
// until the provider is called for a replacement.
func (s *siege) strike(ctx context.Context) (time.Duration, error) {
	if len(s.victims) == 0 {
		return 0, fmt.Errorf("no instance is left to die")
	}
	var victim fleet.InstanceID
	victim, s.victims = s.victims[0], s.victims[1:]
	at := time.Now()
	if err := s.leader.tell("kill " + string(victim)); err != nil {
		return 0, err
	}
	act, err := s.leader.awaitBegun(ctx, "act", "create ", at, time.Minute)
	if err != nil {
		return 0, err
	}
	return act.At.Sub(at), s.agents.tell("drop " + string(victim))
}

// failover kills the leader during half-open connections from all sources, and waits until all
// healthy agents, which share an address, report again.
func (s *siege) failover(ctx context.Context) (figure, error) {
	standby, err := s.start(ctx, 1)
	if err != nil {
		return figure{}, err
	}
	old := s.leader
	s.leader = standby
	defer old.kill()
	attackers, err := s.attack(ctx, attackHalfOpen, s.addrs)
	if err != nil {
		return figure{}, err
	}
	defer attackers.stop(10 * time.Second)
	if err := retry.Wait(ctx, siegeLead); err != nil {
		return figure{}, err
	}
	if err := s.agents.tell("again " + s.addrs[1].Agent); err != nil {
		return figure{}, err
	}
	struck := time.Now()
	if err := old.signal(syscall.SIGKILL); err != nil {
		return figure{}, err
	}
	ready, err := standby.await(ctx, "ready to act", struck, time.Minute)
	if err != nil {
		return figure{}, err
	}
	all, err := s.agents.await(ctx, "reconnected", struck, siegePatience)
	if errors.Is(err, errTooLate) {
		back, err := s.agents.ask(ctx, "back", 10*time.Second)
		return newFigure("siege_reconnect", time.Since(struck).Seconds(), "s", int(back.Value)).atMost(10).
			noted("given up: %d of %d agents of one address had reported to the next leader", int(back.Value), siegeHealthy), err
	}
	if err != nil {
		return figure{}, err
	}
	return newFigure("siege_reconnect", all.At.Sub(struck).Seconds(), "s", siegeHealthy).atMost(10).
		noted("from the leader's death until all of one address have reported to the next, which led after %.1f s",
			ready.At.Sub(struck).Seconds()), nil
}
