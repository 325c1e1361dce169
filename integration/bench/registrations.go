package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

const (
	registrationWarmUp = 500
	registrationCount  = 4000
	registrationGroup  = 50 // instances in a group
)

// measureRegistrations registers in groups of a usual size, and then in a single group with all
// instances.
func measureRegistrations(ctx context.Context, b *bench) ([]figure, error) {
	const all = registrationWarmUp + registrationCount
	usual, err := b.registrations(ctx, "registrations", shard{Size: registrationGroup, Groups: all / registrationGroup})
	if err != nil {
		return usual, err
	}
	single, err := b.registrations(ctx, "registrations_one_group", shard{Size: all})
	return append(usual, single...), err
}

// registrations makes one process register the pending instances of another's shard: a full TLS 1.3
// handshake each, on a connection of its own.
func (b *bench) registrations(ctx context.Context, name string, sh shard) ([]figure, error) {
	s, err := b.memoryServer(ctx, name, sh, fleet.Pending)
	if err != nil {
		return nil, err
	}
	defer s.stop(5 * time.Second)
	clients, err := b.start(ctx, "registrants", name+"_clients", registrantSettings{Kit: s.kit, WarmUp: registrationWarmUp, Concurrency: 32})
	if err != nil {
		return nil, err
	}
	defer clients.stop(time.Second)
	if _, err := clients.await(ctx, "ready", time.Time{}, time.Minute); err != nil {
		return nil, err
	}
	if _, err := clients.ask(ctx, "warm", time.Minute); err != nil {
		return nil, err
	}
	if err := s.tell("profile"); err != nil {
		return nil, err
	}
	before, err := s.ask(ctx, "cpu", 10*time.Second)
	if err != nil {
		return nil, err
	}
	done, err := clients.ask(ctx, "go", 2*time.Minute)
	if err != nil {
		return nil, err
	}
	after, err := s.ask(ctx, "cpu", 10*time.Second)
	if err != nil {
		return nil, err
	}
	if _, err := s.ask(ctx, "profiled", 10*time.Second); err != nil {
		return nil, err
	}
	figures := []figure{
		newFigure(name+"_per_second", registrationCount/done.Value, "1/s", registrationCount).noLess(900).
			noted("groups of %d; client on the same machine, its keys and nonces made before", sh.Size),
		newFigure(name+"_server_cpu", (after.Value-before.Value)*1000/registrationCount, "ms", registrationCount).atMost(0.6).
			noted("each; the client used %.2f ms each beside it", done.CPU*1000/registrationCount),
	}
	b.judge(ctx, name, figures)
	return figures, nil
}

// memoryServer is a server process with an in-memory store.
type memoryServer struct {
	*child
	kit string
}

// memoryServer starts one and waits until it leads.
func (b *bench) memoryServer(ctx context.Context, name string, sh shard, phase fleet.Phase) (*memoryServer, error) {
	dir, err := b.folder(name)
	if err != nil {
		return nil, err
	}
	addrs, err := freeEndpoints(ctx)
	if err != nil {
		return nil, err
	}
	s := &memoryServer{kit: filepath.Join(dir, "kit.json")}
	s.child, err = b.start(ctx, "server", name, serverSettings{
		ID: name, CacheDir: dir, Addrs: addrs, Shard: sh, Phase: phase, Kit: s.kit, Dir: b.temp,
	})
	if err != nil {
		return nil, err
	}
	if _, err := s.await(ctx, "took over", time.Time{}, time.Minute); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}
