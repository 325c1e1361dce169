// Package server is nstance-server: Config, Run, and the wiring in between. It
// boots (boot.go), serves (services.go), campaigns, and while it leads has a term
// (package leader) in which records are written and groups are reconciled.
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
)

// Config is what a server is started with. Everything else is in the shard's
// config in object storage.
type Config struct {
	Shard           string
	ID              string // names this server in logs; unique among the shard's servers
	StorageProvider string // s3 | dir
	StorageBucket   string // a bucket's name, or a directory
	CacheDir        string // empty: no cache of records; only together with Store
	AdvertiseHost   string // empty: the primary interface's address
	// Self is what the provider calls the machine that this server runs on, such as a
	// container; empty: the provider finds out.
	Self string
	// Bind overrides the addresses of the shard's config, so that several servers
	// of a shard can share a host. Port 0 is any free one; the log says which.
	Bind Endpoints
	// InstanceRegistrationAddrs and InstanceAgentAddrs are what new instances are
	// given to dial, instead of the leader's and this server's own address. A
	// shard with a standby and no moving address names all its servers here.
	InstanceRegistrationAddrs []string
	InstanceAgentAddrs        []string

	Debug   bool
	Version string

	// Store and OpenProvider stand in for what the flags and the shard's config
	// name, in tests and simulations; nil: the real ones.
	Store        object.Store
	OpenProvider func(Opening) (provider.Provider, error)
	Times        Times
	// AWS is how AWS is called for secrets. The region is that of the config's secrets; else
	// the one that is given here; else that of the config's provider, if it is AWS, or as the
	// environment and the machine say.
	AWS awsclient.Config
	// Listen and Dial stand in for TCP in simulations; nil: TCP. Listen opens an
	// address of this server; connections over the service's limits are closed
	// whoever made the listener. Dial connects to another server of the shard.
	Listen func(ctx context.Context, addr string) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)

	Getenv func(string) string
	Now    func() time.Time
	Random io.Reader
	Logger *slog.Logger
}

// Times are durations that no shard's config can set, because they count while
// there is none. A zero field takes the value of DefaultTimes.
type Times struct {
	BootRetry   time.Duration // from a failed attempt to boot to the next; up to a half more
	BootAttempt time.Duration // the longest that one attempt may take
	Certificate time.Duration // life of the server's own certificate
	// ClientCertificate is the life of the certificate of an agent or an operator,
	// whose is pki.MaxOperatorLife at most.
	ClientCertificate time.Duration
	ConfigLook        time.Duration // from one look at a config that can't run to the next
}

// DefaultTimes are the times of a server in earnest.
func DefaultTimes() Times {
	const day = 24 * time.Hour
	return Times{
		BootRetry: 30 * time.Second, BootAttempt: 2 * time.Minute, Certificate: 365 * day, ClientCertificate: 90 * day,
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

// DefaultHealthAddr is where a server shows its health before it knows its
// config.
const DefaultHealthAddr = "0.0.0.0:8990"

// Validate reports everything that is wrong with c, naming the flags.
func (c Config) Validate() error {
	if c.Getenv == nil || c.Now == nil || c.Random == nil || c.Logger == nil {
		return errors.New("run a server: an environment, a clock, a source of randomness and a logger are needed")
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

// checkStorage checks what names the real storage, and the cache beside it.
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

// minClientCertificate leaves time to renew.
const minClientCertificate = 10 * time.Second

// checkHost reports why others can't dial host; an empty one stands for the
// primary interface.
func checkHost(host string) error {
	if host == "" {
		return nil
	}
	if _, err := rpc.ParseAddr(net.JoinHostPort(host, "1")); err != nil || wildcard(host) {
		return fmt.Errorf("%.80q is not valid: want a DNS name or an IP address that others can reach, without a port", host)
	}
	return nil
}
