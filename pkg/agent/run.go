package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

type agent struct {
	*membership // from the moment that its directory was read
	config      Config
	run         string // of this process (rpc.WithRun)
	tracker     *tracker
	trigger     trigger
	// nextReplaced is that a key for a renewal was refused as another instance's, and is
	// replaced. Of the goroutine that renews.
	nextReplaced bool
	// noticed is what the provider announced about the end of this machine; nil:
	// nothing. It is never changed in place.
	noticed atomic.Pointer[nstancev1.TerminationNotice]
}

// Run is an agent's life, until ctx ends: then it reports that to the server and
// returns nil. It also returns, with an error, when something is wrong that
// another start may find changed; the caller should wait a little before it lets
// that happen. A refused nonce is no error: Run logs it and waits for ctx, or for
// another nonce.
func Run(ctx context.Context, c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	run, err := newRun(c.Entropy)
	if err != nil {
		return err
	}
	a := &agent{config: c, run: run, tracker: newTracker(c), trigger: newTrigger()}
	defer a.tracker.stopped()
	stop, err := serveHealth(ctx, c.HealthAddr, a.tracker)
	if err != nil {
		return err
	}
	defer stop()
	var beside sync.WaitGroup
	defer beside.Wait()
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	beside.Go(func() { a.watchForNotice(watching) })
	for {
		err = a.live(ctx)
		var final *finalError
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.As(err, &final):
			return err
		}
		a.tracker.failed(StateRejected, err)
		c.Logger.LogAttrs(ctx, slog.LevelError, "this instance can't join its cluster: the agent stays up and waits for another nonce",
			slog.Any("error", err))
		if !a.awaitNonce(ctx) {
			return nil
		}
		c.Logger.LogAttrs(ctx, slog.LevelInfo, "another nonce is there: trying again")
	}
}

// nonceLook is how often an agent that was rejected looks for another nonce.
const nonceLook = 10 * time.Second

// awaitNonce waits until there is another nonce for this instance than now, and reports
// false when ctx ends first. One that is not whole yet is waited for.
func (a *agent) awaitNonce(ctx context.Context) bool {
	folder := identity.Files{Dir: a.config.IdentityDir}
	refused, _ := folder.Read(nonceFile) // what can't be read now may be later
	for retry.Wait(ctx, nonceLook) == nil {
		text, err := folder.Read(nonceFile)
		if err != nil || bytes.Equal(text, refused) {
			continue
		}
		if c, err := readNonce(string(bytes.TrimSpace(text))); err == nil && (c.instance == "" || c.instance == string(a.config.InstanceID)) {
			return true
		}
	}
	return false
}

// newRun draws the id of a run.
func newRun(entropy io.Reader) (string, error) {
	var id [16]byte
	if _, err := io.ReadFull(entropy, id[:]); err != nil {
		return "", fmt.Errorf("draw an id for this run: %w", err)
	}
	return hex.EncodeToString(id[:]), nil
}

// live registers where that is still to do, and holds the streams.
func (a *agent) live(ctx context.Context) (err error) {
	a.membership, err = openMembership(ctx, a.config)
	if err != nil {
		return err
	}
	a.tracker.belongs(a.home)
	if err := a.join(ctx); err != nil {
		return err
	}
	cert := a.Certificate()
	a.tracker.registered(cert)
	a.config.Logger.LogAttrs(ctx, slog.LevelInfo, "registered", slog.String("instance_id", string(a.config.InstanceID)),
		slog.String("server", a.home.String()), slog.Time("certificate_expires", cert.NotAfter))
	return a.hold(ctx)
}

func (a *agent) join(ctx context.Context) error {
	if a.registered {
		if a.nonce == "" {
			return nil
		}
		return a.spend() // the last start ended between the two
	}
	client, err := a.client(a.config.RegistrationAddrs)
	if err != nil {
		return err
	}
	defer client.Close()
	a.tracker.enter(StateRegistering)
	err = a.register(ctx, client)
	var final *finalError
	if !errors.As(err, &final) || a.Problem() != nil || a.Verify(time.Time{}) != nil {
		return err
	}
	// There is a certificate, against which only its dates speak, by the clock here: it was
	// not used for want of a reason to doubt the nonce.
	a.config.Logger.LogAttrs(ctx, slog.LevelWarn, "the nonce is of no use: going on with the present certificate, if the server accepts it",
		slog.Any("error", err), slog.Time("certificate_expires", a.Certificate().NotAfter))
	return a.spend()
}

func (a *agent) hold(ctx context.Context) error {
	client, err := a.client(a.config.AgentAddrs)
	if err != nil {
		return err
	}
	defer client.Close()
	a.tracker.enter(StateConnecting)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { a.keepCertificate(ctx, client) })
	Hold(ctx, HoldConfig{
		Client:         client,
		ReportInterval: a.config.ReportInterval,
		Run:            a.run,
		Fill:           a.fill,
		Files:          a.received(ctx),
		Keys:           a.keys(ctx),
		Expired:        a.expired,
		ReportNow:      a.trigger,
		Random:         a.config.Random,
		Now:            a.config.Now,
		Logger:         a.config.Logger,
		Observe:        a.tracker.observe,
	})
	return nil
}

func (a *agent) fill(ctx context.Context, report *nstancev1.ReportHealthRequest) {
	report.Version = a.config.Version
	report.Resources = a.config.Sample(ctx)
	report.Termination = a.noticed.Load()
}

func (a *agent) client(addrs []string) (*rpc.Client, error) {
	client, err := rpc.NewClient(rpc.ClientConfig{
		Addrs:     addrs,
		TLS:       func(host string) *tls.Config { return a.TLS(a.home.shard, host) },
		UserAgent: "nstance-agent/" + a.config.Version,
		Random:    a.config.Random,
		Dialer:    a.config.Dialer,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %v: %w", addrs, err)
	}
	return client, nil
}
