package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/httpapi"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/secrets"
)

const (
	seenInstances = 1000
	seenDeaths    = 100
	// seenTarget leaves the dashboard 200 of 300 ms to draw: integration/dashboard measures that.
	seenTarget = 100 * time.Millisecond
	seenSettle = 2 * time.Second // as in the row replacement
)

// seenShard is a shard with its agents, and a stream of the HTTP API.
type seenShard struct {
	machines *machines
	people   *population
	replaced chan sight
}

// sight is a replacement that the stream has told of.
type sight struct {
	decided, at time.Time
}

// measureSeen lets machines die one at a time, and waits until a client of the HTTP API has the event of
// the replacement.
func measureSeen(ctx context.Context, b *bench) (figures []figure, err error) {
	dir, logger, closeLog, err := b.logged("seen")
	if err != nil {
		return nil, err
	}
	defer closeLog()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	s := &seenShard{
		machines: newMachines(fake.New(fake.Config{GetLatency: fake.Fixed(statusLatency)})), people: newPopulation(ctx, logger),
		replaced: make(chan sight, 2*seenInstances),
	}
	defer s.people.close()
	s.machines.created = s.people.born
	store := mem.New(mem.Config{Latency: storeLatency})
	addrs, err := prepare(ctx, store, shard{Size: seenInstances, Unlimited: true, NoDrain: true, Settle: seenSettle.String()})
	if err != nil {
		return nil, err
	}
	stop := node{ID: "server", Store: store, Provider: s.machines, CacheDir: dir, Addrs: addrs, Logger: logger}.start(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	cluster, err := trust(ctx, store)
	if err != nil {
		return nil, err
	}
	id, err := operatorIn(dir, cluster) //nolint:contextcheck // it reads files
	if err != nil {
		return nil, err
	}
	asks, err := s.serve(ctx, addrs.Operator, id, logger)
	if err != nil {
		return nil, err
	}
	defer asks.Close()
	if err := errors.Join(s.settle(ctx), retry.Wait(ctx, seenSettle)); err != nil {
		return nil, err
	}
	return b.profiled(ctx, "seen", func() ([]figure, error) { return s.deaths(ctx) })
}

// operatorIn makes a folder with the identity of the operator.
func operatorIn(dir string, cluster secrets.Trust) (*admin.Identity, error) {
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := cluster.CA.IssueOperator(pki.ClientRequest{
		Tenant: fleet.DefaultTenant, ID: string(operatorID), PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: time.Hour,
	}, rand.Reader)
	if err != nil {
		return nil, err
	}
	text, err := pki.EncodePrivateKey(key)
	if err != nil {
		return nil, err
	}
	files := identity.Files{Dir: dir, Mode: 0o600}
	for name, part := range map[string][]byte{
		identity.CAsName: cluster.Bundle.PEM(), identity.CertificateName: pki.EncodeCertificate(cert), identity.KeyName: text,
	} {
		if err := files.Write(name, part, 0o600); err != nil {
			return nil, err
		}
	}
	return admin.LoadIdentity(dir, time.Now, rand.Reader)
}

// serve serves the HTTP API, and reads its stream.
func (s *seenShard) serve(ctx context.Context, addr string, id *admin.Identity, logger *slog.Logger) (*admin.Client, error) {
	asks := admin.NewClient(admin.Config{Identity: id, UserAgent: "bench", Random: mathrand.Float64})
	api, err := httpapi.New(httpapi.Config{
		Service: asks, Shards: []client.Shard{{ID: shardID, Addrs: []string{addr}}}, Version: "bench", Timeout: time.Minute, Boot: "bench",
		Now: time.Now, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	l, err := httpapi.Listen(ctx, loopback+":0", httpapi.TLS{})
	if err != nil {
		return nil, err
	}
	go func() {
		if err := api.Serve(ctx, l); err != nil {
			logger.Error("the API has ended", slog.Any("error", err))
		}
	}()
	go func() {
		if err := s.follow(ctx, l.URL()+"/events"); err != nil && ctx.Err() == nil {
			logger.Error("the stream has ended", slog.Any("error", err))
		}
	}()
	return asks, nil
}

// follow reads the whole stream, as the dashboard does, and notes the replacements.
func (s *seenShard) follow(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			Event *struct {
				Kind string
				At   time.Time
			}
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return err
		}
		if e.Event != nil && e.Event.Kind == string(fleet.EventReplace) {
			s.replaced <- sight{e.Event.At, time.Now()}
		}
	}
	return lines.Err()
}

// settle waits until all agents report.
func (s *seenShard) settle(ctx context.Context) error {
	return until(ctx, "1,000 agents report", 3*time.Minute, func() bool { return s.people.reporting() >= seenInstances })
}

func (s *seenShard) deaths(ctx context.Context) ([]figure, error) {
	var death, decision spread
	for range seenDeaths {
		for len(s.replaced) > 0 {
			<-s.replaced
		}
		victim := s.people.take()
		s.machines.world.Kill(victim.id)
		died := victim.die()
		select {
		case seen := <-s.replaced:
			death, decision = append(death, seen.at.Sub(died)), append(decision, seen.at.Sub(seen.decided))
		case <-time.After(10 * time.Second):
			return nil, fmt.Errorf("nothing was seen of the replacement of %s after 10 s", victim.id)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		victim.stop()
		pause := time.Duration(mathrand.Int64N(int64(100 * time.Millisecond))) // the shard's own pauses are not met always alike
		if err := errors.Join(s.settle(ctx), retry.Wait(ctx, pause)); err != nil {
			return nil, err
		}
	}
	out := death.p50p99("seen_death", "ms", time.Millisecond, milliseconds(seenTarget))
	out[1] = out[1].noted("from the death of a machine until a client of the HTTP API has the event of its replacement")
	return append(out, decision.p50p99("seen_event", "ms", time.Millisecond, milliseconds(seenTarget))...), nil
}
