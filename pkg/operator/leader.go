package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/operator/registration"
	"github.com/nstance/nstance/pkg/operator/secretstore"
	"github.com/nstance/nstance/pkg/operator/settings"
	"github.com/nstance/nstance/pkg/operator/shards"
)

var errNotRegistered = errors.New("the operator is not registered yet")

// leader is the work of the elected operator: it registers, holds the connections to all
// shards, and renews its certificate.
type leader struct {
	config Config
	store  *secretstore.Store
	// looks is a separate view of the same store: a write to store depends on what was last
	// read through it.
	looks  *secretstore.Store
	client *client.Client
	shards *shards.Set
	log    *slog.Logger

	file atomic.Pointer[settings.File]     // current
	id   atomic.Pointer[identity.Identity] // nil until registered
	// registered is whether the last read found a usable certificate.
	registered atomic.Bool
	began      time.Time
}

func newLeader(c Config, log *slog.Logger) (*leader, error) {
	// Identities are read past any cache: each write depends on the last read.
	direct, err := kube.New(c.REST, kube.Options{})
	if err != nil {
		return nil, err
	}
	stored := secretstore.Config{
		Client: direct, Namespace: c.Namespace, Holder: c.Host, Now: c.Now,
		CAConfigMap: c.CAConfigMap, CertSecret: c.CertSecret, KeySecret: c.KeySecret, NonceSecret: c.NonceSecret,
	}
	l := &leader{config: c, log: log, store: secretstore.New(stored), looks: secretstore.New(stored), began: c.Now()}
	l.client = client.New(client.Config{TLS: l.tls, UserAgent: c.userAgent(), Random: c.Random, Dialer: c.Dialer})
	l.shards = shards.New(shards.Config{Client: l.client, Now: c.Now, Random: c.Random})
	l.use(c.File)
	return l, nil
}

// use makes f current. Its shards are known at once, so that no controller mistakes a shard
// that has not answered yet for one that is gone.
func (l *leader) use(f settings.File) {
	l.file.Store(&f)
	l.shards.Configure(f.Operators())
}

func (l *leader) operators() []client.Shard { return l.file.Load().Operators() }

// NeedLeaderElection returns true: the manager starts it once elected.
func (l *leader) NeedLeaderElection() bool { return true }

// Start runs the leader's work until ctx ends. An error ends the process.
func (l *leader) Start(ctx context.Context) error {
	defer l.client.Close()
	id, err := registration.Open(ctx, l.registration(l.store))
	if ctx.Err() != nil {
		return nil // ctx ended
	}
	if err != nil {
		return err
	}
	l.id.Store(id)
	l.log.LogAttrs(ctx, slog.LevelInfo, "connecting to the shards", slog.String("operator", id.ID()),
		slog.Any("shards", l.shards.Names()), slog.Time("certificate_expires", id.Certificate().NotAfter))
	return together(ctx,
		l.shards.Run,
		func(ctx context.Context) error {
			return registration.RunRenewal(ctx, id, registration.RenewalConfig{
				Client: l.client, Shards: l.operators, Timeout: l.config.ShardTimeout,
				Now: l.config.Now, Random: l.config.Random, Logger: l.log,
			})
		},
	)
}

func (l *leader) registration(store *secretstore.Store) registration.Config {
	c, f := l.config, l.file.Load()
	asked := make([]client.Shard, 0, len(f.Shards))
	for _, s := range f.Shards {
		asked = append(asked, client.Shard{ID: s.ID, Addrs: s.Registration})
	}
	return registration.Config{
		Store: store, Cluster: f.Cluster, Tenant: f.Tenant, Shards: asked, Timeout: c.ShardTimeout, UserAgent: c.userAgent(),
		Now: c.Now, Random: c.Random, Entropy: c.Entropy, Dialer: c.Dialer, Logger: l.log,
	}
}

// tls is the TLS config for connections to shards. Controllers may dial before there is an
// identity.
func (l *leader) tls(shard, host string) *tls.Config {
	if id := l.id.Load(); id != nil {
		return id.TLS(shard, host)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // safe: VerifyConnection rejects every server
		VerifyConnection:   func(tls.ConnectionState) error { return errNotRegistered },
	}
}

// waitPatience is how long a standby reports not ready for lack of a certificate. A
// registration takes seconds. After that a standby is always ready: a rollout may be waiting
// for it before ending the leader, and the leader may have lost its certificate.
const waitPatience = time.Minute

// ready returns an error while this operator is not useful yet. A standby is ready once there
// is a certificate. If it were ready before, a rollout could complete and delete the nonce
// that the first registration still needs.
func (l *leader) ready(ctx context.Context, elected <-chan struct{}) error {
	if l.id.Load() != nil {
		return nil
	}
	select {
	case <-elected:
		return errNotRegistered
	default:
	}
	if !l.config.LeaderElect {
		return errNotRegistered
	}
	if l.registered.Load() || l.config.Now().Sub(l.began) >= waitPatience {
		return nil
	}
	if err := registration.Check(ctx, l.registration(l.looks)); err != nil {
		return err
	}
	l.registered.Store(true)
	return nil
}

// together runs tasks until all have ended. The first failure cancels the others, and its
// error is returned.
func together(ctx context.Context, tasks ...func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	var first error
	var once sync.Once
	for _, task := range tasks {
		all.Go(func() {
			if err := task(ctx); err != nil {
				once.Do(func() { first = err })
				stop(err)
			}
		})
	}
	all.Wait()
	return first
}
