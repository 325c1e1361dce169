package agent

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/tracing"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Config is the configuration of an agent.
type Config struct {
	// Set by FromEnv.

	RegistrationAddrs []string
	AgentAddrs        []string

	InstanceID fleet.InstanceID
	Kind       string
	Hostname   string // for registration; empty: the name that the server assigned
	FQDN       string
	IPv4, IPv6 string // for registration; empty: those that the provider reports

	IdentityDir, KeysDir, RecvDir    string // an empty KeysDir or RecvDir ignores keys or files
	IdentityMode, KeysMode, RecvMode fs.FileMode

	ReportInterval   time.Duration
	SpotPollInterval time.Duration
	Provider         string // where the instance runs; "auto" detects it
	AWSMetadata      string // URL of the EC2 metadata service; empty: the default
	GCPMetadata      string // host of Google's metadata server; empty: the default
	HealthAddr       string // empty: no health endpoint
	MetricsAddr      string // empty: no metrics
	Debug            bool

	// Set by the program.

	Version string
	Logger  *slog.Logger
	Now     func() time.Time
	Random  func() float64 // returns numbers in [0, 1), for jitter
	Entropy io.Reader      // for the key
	// Sample measures the machine for a report; it is usually the function Sample.
	Sample func(context.Context) *nstancev1.Resources
	// Tracer makes the agent's part of the trace of the instance's start; nil: none is made.
	Tracer *tracing.Tracer
	// Dialer opens connections to servers and to the cloud's metadata service; nil: TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// Defaults of the environment variables.
const (
	defaultRoot             = "/opt/nstance-agent"
	defaultIdentityMode     = fs.FileMode(0o600)
	defaultKeysMode         = fs.FileMode(0o640)
	defaultRecvMode         = fs.FileMode(0o640)
	defaultReportInterval   = 60 * time.Second
	defaultSpotPollInterval = 2 * time.Second
	defaultProvider         = "auto"
)

func (c Config) check() error {
	switch {
	case len(c.RegistrationAddrs) == 0 || len(c.AgentAddrs) == 0 || c.InstanceID == "" || c.IdentityDir == "" || c.ReportInterval <= 0:
		return errors.New("run the agent: addresses, instance id, identity directory and report interval are required")
	case c.KeysDir != "" && c.KeysMode == 0 || c.RecvDir != "" && c.RecvMode == 0:
		return errors.New("run the agent: the modes of keys and of received files are required")
	case c.Logger == nil || c.Now == nil || c.Random == nil || c.Entropy == nil || c.Sample == nil:
		return errors.New("run the agent: logger, clock, randomness and Sample are required")
	}
	return nil
}

// ips returns the configured addresses. Addresses that the agent could detect itself are of no
// use, since the server relies on the provider's.
func (c Config) ips() []string {
	return slices.DeleteFunc([]string{c.IPv4, c.IPv6}, func(ip string) bool { return ip == "" })
}
