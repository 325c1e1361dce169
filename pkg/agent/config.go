package agent

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Config is everything an agent is told.
type Config struct {
	// What FromEnv reads.

	RegistrationAddrs []string
	AgentAddrs        []string

	InstanceID fleet.InstanceID
	Kind       string
	Hostname   string
	FQDN       string
	IPv4, IPv6 string // empty: not known

	IdentityDir, KeysDir, RecvDir    string // without KeysDir or RecvDir, what would go there is ignored
	IdentityMode, KeysMode, RecvMode fs.FileMode

	ReportInterval   time.Duration
	SpotPollInterval time.Duration
	Provider         string // where the instance runs; "auto" finds out
	AWSMetadata      string // URL of the EC2 metadata service; empty: the usual one
	GCPMetadata      string // host of Google's metadata server; empty: the usual one
	HealthAddr       string // empty: no health endpoint
	Debug            bool

	// What the program adds.

	Version string
	Logger  *slog.Logger
	Now     func() time.Time
	Random  func() float64 // yields numbers from [0, 1), for waits
	Entropy io.Reader      // for the key
	// Sample measures the machine for a report; it is usually the function Sample.
	Sample func(context.Context) *nstancev1.Resources
	// Dialer makes the connections to servers and to the cloud's metadata service;
	// nil: TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// Defaults of what the environment leaves out.
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
		return errors.New("run the agent: addresses, instance id, identity directory and report interval are needed")
	case c.KeysDir != "" && c.KeysMode == 0 || c.RecvDir != "" && c.RecvMode == 0:
		return errors.New("run the agent: the modes of keys and of received files are needed")
	case c.Logger == nil || c.Now == nil || c.Random == nil || c.Entropy == nil || c.Sample == nil:
		return errors.New("run the agent: logger, clock, randomness and a way to measure the machine are needed")
	}
	return nil
}

// ips are the addresses that the agent was told of.
func (c Config) ips() []string {
	return slices.DeleteFunc([]string{c.IPv4, c.IPv6}, func(ip string) bool { return ip == "" })
}

// FirstAddresses picks the first IPv4 and the first IPv6 address by which other
// machines can know this one, out of what net.InterfaceAddrs lists; for a
// machine that was told none. Empty when there is none.
func FirstAddresses(addrs []net.Addr) (ipv4, ipv6 string) {
	for _, addr := range addrs {
		prefix, err := netip.ParsePrefix(addr.String())
		if err != nil || !prefix.Addr().IsGlobalUnicast() {
			continue
		}
		ip := prefix.Addr().Unmap()
		switch {
		case ip.Is4() && ipv4 == "":
			ipv4 = ip.String()
		case ip.Is6() && ipv6 == "":
			ipv6 = ip.String()
		}
	}
	return ipv4, ipv6
}
