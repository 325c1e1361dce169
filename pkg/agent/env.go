package agent

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/env"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
)

// The environment variables that an agent reads.
const (
	envRegistrationAddr = "NSTANCE_SERVER_REGISTRATION_ADDR"
	envAgentAddr        = "NSTANCE_SERVER_AGENT_ADDR"
	envInstanceID       = "NSTANCE_INSTANCE_ID"
	envInstanceKind     = "NSTANCE_INSTANCE_KIND"
	envHostname         = "NSTANCE_INSTANCE_HOSTNAME"
	envFQDN             = "NSTANCE_INSTANCE_FQDN"
	envIPv4             = "NSTANCE_INSTANCE_IPV4"
	envIPv6             = "NSTANCE_INSTANCE_IPV6"
	envIdentityDir      = "NSTANCE_IDENTITY_DIR"
	envKeysDir          = "NSTANCE_KEYS_DIR"
	envRecvDir          = "NSTANCE_RECV_DIR"
	envIdentityMode     = "NSTANCE_IDENTITY_MODE"
	envKeysMode         = "NSTANCE_KEYS_MODE"
	envRecvMode         = "NSTANCE_RECV_MODE"
	envReportInterval   = "NSTANCE_REPORT_INTERVAL"
	envSpotPollInterval = "NSTANCE_SPOT_POLL_INTERVAL"
	envProvider         = "NSTANCE_PROVIDER"
	envHealthAddr       = "NSTANCE_HEALTH_ADDR"
	envMetricsAddr      = "NSTANCE_METRICS_ADDR"
	envDebug            = "NSTANCE_DEBUG"
	// The clouds' own variable names, which other metadata clients on the machine also use.
	envAWSMetadata = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
	envGCPMetadata = "GCE_METADATA_HOST"
)

const (
	minInterval = 100 * time.Millisecond
	maxInterval = time.Hour
)

var hostnamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

func providers() []string { return []string{"auto", "aws", "gcp", "docker", "process", "none"} }

// FromEnv reads the configuration through getenv, usually os.Getenv. An empty variable counts
// as unset. The error lists all problems at once, each with the variable, its value and what
// is valid. Version and Logger are left for the caller to set; an unset host name or address
// is left to the server.
func FromEnv(getenv func(string) string) (Config, error) {
	e := &variables{env.Reader{Getenv: getenv}}
	c := Config{
		RegistrationAddrs: e.addrs(envRegistrationAddr),
		AgentAddrs:        e.addrs(envAgentAddr),
		InstanceID:        e.instanceID(),
		Hostname:          e.hostname(envHostname),
		FQDN:              e.hostname(envFQDN),
		IPv4:              e.ip(envIPv4, netip.Addr.Is4, "an IPv4 address such as 10.0.0.7"),
		IPv6:              e.ip(envIPv6, netip.Addr.Is6, "an IPv6 address such as fd00::7"),
		IdentityDir:       e.dir(envIdentityDir, "identity"),
		KeysDir:           e.dir(envKeysDir, "keys"),
		RecvDir:           e.dir(envRecvDir, "recv"),
		IdentityMode:      e.mode(envIdentityMode, defaultIdentityMode),
		KeysMode:          e.mode(envKeysMode, defaultKeysMode),
		RecvMode:          e.mode(envRecvMode, defaultRecvMode),
		ReportInterval:    e.interval(envReportInterval, defaultReportInterval),
		SpotPollInterval:  e.interval(envSpotPollInterval, defaultSpotPollInterval),
		Provider:          e.provider(),
		AWSMetadata:       e.metadataURL(),
		GCPMetadata:       e.metadataHost(),
		HealthAddr:        e.listenAddr(envHealthAddr),
		MetricsAddr:       e.listenAddr(envMetricsAddr),
		Debug:             e.Bool(envDebug),
	}
	c.Kind = e.kind(c.InstanceID)
	e.apart(c)
	return c, e.Err()
}

// IdentityDir returns the identity directory from the environment, for commands that inspect
// an agent without its other variables.
func IdentityDir(getenv func(string) string) string {
	return (&variables{env.Reader{Getenv: getenv}}).dir(envIdentityDir, "identity")
}

// variables reads variables one by one and collects all errors.
type variables struct{ env.Reader }

func (e *variables) addrs(name string) []string {
	addrs, err := rpc.ParseAddrs(name, e.Get(name))
	e.Fail(err)
	return addrs
}

func (e *variables) instanceID() fleet.InstanceID {
	id, err := fleet.ParseID(e.Get(envInstanceID))
	if err != nil {
		e.Fail(fmt.Errorf("%s: %w", envInstanceID, err))
	}
	return id
}

// kind returns the kind of the ID unless a variable overrides it.
func (e *variables) kind(id fleet.InstanceID) string {
	value := e.Get(envInstanceKind)
	if value == "" && id != "" {
		return id.Kind()
	}
	if value == "" {
		return ""
	}
	if err := fleet.CheckKind(value); err != nil {
		e.Fail(fmt.Errorf("%s: %w", envInstanceKind, err))
	}
	return value
}

func (e *variables) hostname(name string) string {
	value := e.Get(name)
	if value != "" && (len(value) > 253 || !hostnamePattern.MatchString(value)) {
		e.Reject(name, value, "a host name of letters, digits, hyphens and dots (RFC 1123)")
	}
	return value
}

func (e *variables) ip(name string, family func(netip.Addr) bool, want string) string {
	value := e.Get(name)
	if value == "" {
		return ""
	}
	ip, err := netip.ParseAddr(value)
	if err != nil || !family(ip) || ip.Zone() != "" || ip.Is4In6() {
		e.Reject(name, value, want)
		return ""
	}
	return ip.String()
}

func (e *variables) dir(name, base string) string {
	value := cmp.Or(e.Get(name), filepath.Join(defaultRoot, base))
	if !filepath.IsAbs(value) || strings.ContainsRune(value, 0) {
		e.Reject(name, value, "an absolute path")
	}
	return filepath.Clean(value)
}

func (e *variables) mode(name string, otherwise fs.FileMode) fs.FileMode {
	value := e.Get(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(value, 8, 32)
	if err != nil || n > 0o777 || n&0o600 != 0o600 || n&0o002 != 0 {
		e.Reject(name, value, "an octal file mode such as 0640, with which the owner can read and write and others can't write")
		return otherwise
	}
	return fs.FileMode(n)
}

func (e *variables) interval(name string, otherwise time.Duration) time.Duration {
	value := cmp.Or(e.Get(name), otherwise.String())
	d, err := time.ParseDuration(value)
	if err != nil || d < minInterval || d > maxInterval {
		e.Reject(name, value, fmt.Sprintf("a duration from %s to %s such as 60s", minInterval, maxInterval))
		return otherwise
	}
	return d
}

func (e *variables) provider() string {
	value := cmp.Or(e.Get(envProvider), defaultProvider)
	if !slices.Contains(providers(), value) {
		e.Reject(envProvider, value, "one of "+strings.Join(providers(), ", "))
	}
	return value
}

func (e *variables) metadataURL() string {
	value := e.Get(envAWSMetadata)
	u, err := url.Parse(value)
	if value != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		e.Reject(envAWSMetadata, value, "a URL such as http://169.254.169.254 or http://[fd00:ec2::254]")
		return ""
	}
	return value
}

func (e *variables) metadataHost() string {
	value := e.Get(envGCPMetadata)
	u, err := url.Parse("http://" + value)
	if value != "" && (err != nil || u.Host != value || u.User != nil) {
		e.Reject(envGCPMetadata, value, "a host, with a port or without, such as metadata.google.internal")
		return ""
	}
	return value
}

func (e *variables) listenAddr(name string) string {
	value := e.Get(name)
	if value == "" || value == "off" {
		return ""
	}
	addr, err := rpc.ParseListenAddr(value)
	if err != nil {
		e.Fail(fmt.Errorf("%s: %w, or off", name, err))
	}
	return addr
}
