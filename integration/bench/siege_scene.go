package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server"
)

// siege is dev-s3, a leader (and later a standby), and its agents.
type siege struct {
	bench    *bench
	s3       *child
	endpoint string
	leader   *child
	agents   *child
	operator *operator
	kit      string
	addrs    []server.Endpoints // of both servers

	healthy, victims []fleet.InstanceID
}

func (b *bench) newSiege(ctx context.Context) (_ *siege, err error) {
	s := &siege{bench: b}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	deaths := (int(b.siegeTime/siegeDeaths) + 2) * (len(attackNames()) + 1)
	sh := shard{Size: siegeHealthy + deaths + 1, Unlimited: true, NoDrain: true, RegistrationTimeout: "1h"}
	if s.s3, s.endpoint, err = b.devS3(ctx, "siege", sh); err != nil {
		return nil, err
	}
	for range 2 {
		addrs, err := freeEndpoints(ctx)
		if err != nil {
			return nil, err
		}
		s.addrs = append(s.addrs, addrs)
	}
	if s.leader, err = s.start(ctx, 0); err != nil {
		return nil, err
	}
	if _, err := s.leader.await(ctx, "took over", time.Time{}, time.Minute); err != nil {
		return nil, err
	}
	return s, s.people(ctx)
}

// start starts the server at one set of addresses.
func (s *siege) start(ctx context.Context, n int) (*child, error) {
	cache, err := s.bench.folder("siege-cache")
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("siege-%d", n)
	c, err := s.bench.start(ctx, "server", name, serverSettings{
		ID: name, CacheDir: cache, Addrs: s.addrs[n], Endpoint: s.endpoint, Telling: true, Dir: s.bench.temp,
	})
	if err != nil {
		return nil, err
	}
	if _, err := c.await(ctx, "serving", time.Time{}, time.Minute); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// people connects the agents and an operator.
func (s *siege) people(ctx context.Context) error {
	store, err := openS3(s.endpoint)
	if err != nil {
		return err
	}
	records, err := readRecords(ctx, store)
	if err != nil {
		return err
	}
	dir, err := s.bench.folder("siege")
	if err != nil {
		return err
	}
	s.kit = filepath.Join(dir, "kit.json")
	if err := writeKit(ctx, s.kit, store, records, s.addrs[0]); err != nil {
		return err
	}
	for _, r := range records {
		s.victims = append(s.victims, r.ID)
	}
	s.healthy, s.victims = s.victims[:siegeHealthy], s.victims[siegeHealthy:len(s.victims)-1]
	s.agents, err = s.bench.start(ctx, "besieged", "siege-agents", besiegedSettings{
		Kit: s.kit, Agents: []string{s.addrs[0].Agent, s.addrs[1].Agent}, Interval: siegeReports, Healthy: siegeHealthy,
	})
	if err != nil {
		return err
	}
	if _, err := s.agents.await(ctx, "connected", time.Time{}, 3*time.Minute); err != nil {
		return err
	}
	k, err := readKit(s.kit)
	if err != nil {
		return err
	}
	ca, err := k.ca()
	if err != nil {
		return err
	}
	if s.operator, err = newOperator(ca, k.Addrs.Operator); err != nil {
		return err
	}
	return s.heard(ctx)
}

// heard waits until the server has a report of every healthy agent: sent reports may still be in
// transit.
func (s *siege) heard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		late, err := s.late(ctx)
		if err == nil && late < siegeReports {
			return nil
		}
		if retry.Wait(ctx, 200*time.Millisecond) != nil {
			return errors.Join(fmt.Errorf("not all agents were heard within a minute: one is late by %s", late), err)
		}
	}
}

// attack starts an attack on servers, from a process of its own.
func (s *siege) attack(ctx context.Context, name string, on []server.Endpoints) (*child, error) {
	c, err := s.bench.start(ctx, "attackers", "siege-"+name, attackSettings{Kit: s.kit, Attack: name, Targets: on})
	if err != nil {
		return nil, err
	}
	if _, err := c.await(ctx, "attacking", time.Time{}, time.Minute); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

func (s *siege) close() {
	if s.operator != nil {
		s.operator.close()
	}
	for _, c := range []*child{s.agents, s.leader} {
		if c != nil {
			c.kill()
		}
	}
	if s.s3 != nil {
		s.s3.stop(5 * time.Second)
	}
}
