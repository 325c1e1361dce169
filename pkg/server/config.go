// Package server is nstance-server: Config, Run, and the wiring in between. It boots (boot.go),
// serves (services.go) and campaigns; while it leads, it has a term (package leader) in which
// records are written and groups are reconciled.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/bucket"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/tracing"
)

// Config is the start configuration of a server. Everything else is in the shard's config in
// object storage.
type Config struct {
	Shard           string
	ID              string // in logs; unique among the shard's servers
	StorageProvider string // s3 | dir
	StorageBucket   string // a bucket's name, or a directory
	// InsecureStorage allows plain HTTP to other machines, for the bucket and for services of
	// AWS.
	InsecureStorage bool
	CacheDir        string // empty: no cache of records; only together with Store
	AdvertiseHost   string // empty: the primary interface's address
	// Self is the provider's ID of the machine or container that this server runs on; empty: the
	// provider detects it.
	Self string
	// Bind overrides the addresses of the shard's config, so that several servers of a shard can
	// share a host. Port 0 means any free port, which is logged.
	Bind Endpoints
	// InstanceRegistrationAddrs and InstanceAgentAddrs are the addresses that new instances
	// connect to, instead of the leader's and this server's own. A shard with a standby and no
	// moving address lists all its servers here.
	InstanceRegistrationAddrs []string
	InstanceAgentAddrs        []string

	Debug   bool
	Version string

	// Store and OpenProvider replace the configured store and provider in tests and simulations;
	// nil: the configured ones.
	Store        object.Store
	OpenProvider func(Opening) (provider.Provider, error)
	Times        Times
	// AWS is how AWS is called for secrets. The region is that of the config's secrets; else the
	// one given here; else that of the config's provider, if it is AWS, or the one detected from
	// the environment and the machine.
	AWS awsclient.Config
	// Listen and Dial replace TCP in simulations; nil: TCP. Listen opens an address of this
	// server; the service's connection limits apply to it, too. Dial connects to another
	// server of the shard.
	Listen func(ctx context.Context, addr string) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)

	Tracer *tracing.Tracer // nil: no traces
	Getenv func(string) string
	Now    func() time.Time
	Random io.Reader
	Logger *slog.Logger
}

// Times are durations that the shard's config can't set, because they apply before it is read. A
// zero field means that of DefaultTimes.
type Times struct {
	BootRetry   time.Duration // pause after a failed boot; up to 50% more
	BootAttempt time.Duration // timeout of one boot
	// Certificate is the life of the server's own certificate. It is short, since nothing revokes a
	// stolen one.
	Certificate time.Duration
	// ClientCertificate is the life of certificates of agents and operators; at most
	// pki.MaxOperatorLife for operators.
	ClientCertificate time.Duration
	ConfigLook        time.Duration // interval between reads of an invalid config
}

// DefaultTimes returns the defaults for production.
func DefaultTimes() Times {
	const day = 24 * time.Hour
	return Times{
		BootRetry: 30 * time.Second, BootAttempt: 2 * time.Minute, Certificate: 30 * day, ClientCertificate: 90 * day,
		ConfigLook: leader.ConfigReminder,
	}
}

func (t Times) withDefaults() Times {
	d := DefaultTimes()
	return Times{
		BootRetry: cmp.Or(t.BootRetry, d.BootRetry), BootAttempt: cmp.Or(t.BootAttempt, d.BootAttempt),
		Certificate: cmp.Or(t.Certificate, d.Certificate), ClientCertificate: cmp.Or(t.ClientCertificate, d.ClientCertificate),
		ConfigLook: cmp.Or(t.ConfigLook, d.ConfigLook),
	}
}

// DefaultHealthAddr is the health address until the config is read.
const DefaultHealthAddr = "0.0.0.0:8990"

// Validate reports all mistakes in c by flag.
func (c Config) Validate() error {
	if c.Getenv == nil || c.Now == nil || c.Random == nil || c.Logger == nil {
		return errors.New("server: Getenv, Now, Random and Logger are required")
	}
	var errs []error
	bad := func(flag string, err error) { errs = append(errs, fmt.Errorf("--%s: %w", flag, err)) }
	if err := fleet.CheckName(c.Shard); err != nil {
		bad("shard", err)
	}
	if c.ID == "" {
		bad("id", errors.New("is empty: want a name for this server, such as its host name"))
	}
	if c.Store == nil {
		c.checkStorage(bad)
	}
	if life := c.Times.ClientCertificate; life != 0 && life < minClientCertificate {
		bad("client-certificate-life", fmt.Errorf("%s is not valid: want at least %s", life, minClientCertificate))
	}
	if err := checkHost(c.AdvertiseHost); err != nil {
		bad("advertise-host", err)
	}
	return errors.Join(errs...)
}

// checkStorage checks the flags of the real storage and the cache.
func (c Config) checkStorage(bad func(flag string, err error)) {
	if err := bucket.CheckKind(c.StorageProvider); err != nil {
		bad("storage-provider", err)
	}
	if c.StorageBucket == "" {
		bad("storage-bucket", errors.New("is empty: want a bucket's name, or for the dir provider a directory"))
	}
	if c.CacheDir == "" {
		bad("cache-dir", errors.New("is empty: want a directory"))
	}
}

// minClientCertificate leaves time for renewal.
const minClientCertificate = 10 * time.Second

// checkHost returns an error if other hosts can't dial host. An empty one means the primary
// interface.
func checkHost(host string) error {
	if host == "" {
		return nil
	}
	if _, err := rpc.ParseAddr(net.JoinHostPort(host, "1")); err != nil || wildcard(host) {
		return fmt.Errorf("%.80q is not valid: want a DNS name or an IP address that others can reach, without a port", host)
	}
	return nil
}
