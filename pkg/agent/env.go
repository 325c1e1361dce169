package agent

import (
	"cmp"
	"errors"
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
	envDebug            = "NSTANCE_DEBUG"
	// The clouds' own names: what else asks for metadata on the machine reads them too.
	envAWSMetadata = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
	envGCPMetadata = "GCE_METADATA_HOST"
)

const (
	minInterval = 100 * time.Millisecond
	maxInterval = time.Hour
)

var hostnamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

func providers() []string { return []string{"auto", "aws", "gcp", "docker", "process", "none"} }

// FromEnv reads the configuration through lookup, which is os.LookupEnv but for
// tests. A variable that is set to nothing counts as not set. The error tells
// every problem at once, each with the variable, its value and what is valid.
// Hostname, addresses, Version and Logger may come back empty, for the caller to
// fill in.
func FromEnv(lookup func(string) (string, bool)) (Config, error) {
	e := &env{lookup: lookup}
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
		HealthAddr:        e.healthAddr(),
		Debug:             e.bool(envDebug),
	}
	c.Kind = e.kind(c.InstanceID)
	e.apart(c)
	return c, errors.Join(e.problems...)
}

// IdentityDir is the identity directory that the environment names, for a look
// from outside at an agent whose other variables are not at hand.
func IdentityDir(lookup func(string) (string, bool)) string {
	return (&env{lookup: lookup}).dir(envIdentityDir, "identity")
}

// env collects the problems of one reading.
type env struct {
	lookup   func(string) (string, bool)
	problems []error
}

func (e *env) get(name string) string {
	value, _ := e.lookup(name)
	return strings.TrimSpace(value)
}

func (e *env) reject(name, value, want string) {
	e.problems = append(e.problems, fmt.Errorf("%s: %.80q is not valid: want %s", name, value, want))
}

func (e *env) fail(name string, err error) {
	e.problems = append(e.problems, fmt.Errorf("%s: %w", name, err))
}

func (e *env) addrs(name string) []string {
	addrs, err := rpc.ParseAddrs(name, e.get(name))
	if err != nil {
		e.problems = append(e.problems, err)
	}
	return addrs
}

func (e *env) instanceID() fleet.InstanceID {
	id, err := fleet.ParseID(e.get(envInstanceID))
	if err != nil {
		e.fail(envInstanceID, err)
	}
	return id
}

// kind is the id's own unless the environment says otherwise.
func (e *env) kind(id fleet.InstanceID) string {
	value := e.get(envInstanceKind)
	if value == "" && id != "" {
		return id.Kind()
	}
	if value == "" {
		return ""
	}
	if err := fleet.CheckKind(value); err != nil {
		e.fail(envInstanceKind, err)
	}
	return value
}

func (e *env) hostname(name string) string {
	value := e.get(name)
	if value != "" && (len(value) > 253 || !hostnamePattern.MatchString(value)) {
		e.reject(name, value, "a host name of letters, digits, hyphens and dots (RFC 1123)")
	}
	return value
}

func (e *env) ip(name string, family func(netip.Addr) bool, want string) string {
	value := e.get(name)
	if value == "" {
		return ""
	}
	ip, err := netip.ParseAddr(value)
	if err != nil || !family(ip) || ip.Zone() != "" || ip.Is4In6() {
		e.reject(name, value, want)
		return ""
	}
	return ip.String()
}

func (e *env) dir(name, base string) string {
	value := cmp.Or(e.get(name), filepath.Join(defaultRoot, base))
	if !filepath.IsAbs(value) || strings.ContainsRune(value, 0) {
		e.reject(name, value, "an absolute path")
	}
	return filepath.Clean(value)
}

func (e *env) mode(name string, otherwise fs.FileMode) fs.FileMode {
	value := e.get(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(value, 8, 32)
	if err != nil || n > 0o777 || n&0o600 != 0o600 || n&0o002 != 0 {
		e.reject(name, value, "an octal file mode such as 0640, with which the owner can read and write and others can't write")
		return otherwise
	}
	return fs.FileMode(n)
}

func (e *env) interval(name string, otherwise time.Duration) time.Duration {
	value := cmp.Or(e.get(name), otherwise.String())
	d, err := time.ParseDuration(value)
	if err != nil || d < minInterval || d > maxInterval {
		e.reject(name, value, fmt.Sprintf("a duration from %s to %s such as 60s", minInterval, maxInterval))
		return otherwise
	}
	return d
}

func (e *env) provider() string {
	value := cmp.Or(e.get(envProvider), defaultProvider)
	if !slices.Contains(providers(), value) {
		e.reject(envProvider, value, "one of "+strings.Join(providers(), ", "))
	}
	return value
}

func (e *env) metadataURL() string {
	value := e.get(envAWSMetadata)
	u, err := url.Parse(value)
	if value != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		e.reject(envAWSMetadata, value, "a URL such as http://169.254.169.254 or http://[fd00:ec2::254]")
		return ""
	}
	return value
}

func (e *env) metadataHost() string {
	value := e.get(envGCPMetadata)
	u, err := url.Parse("http://" + value)
	if value != "" && (err != nil || u.Host != value || u.User != nil) {
		e.reject(envGCPMetadata, value, "a host, with a port or without, such as metadata.google.internal")
		return ""
	}
	return value
}

func (e *env) healthAddr() string {
	value := e.get(envHealthAddr)
	if value == "" || value == "off" {
		return ""
	}
	addr, err := rpc.ParseListenAddr(value)
	if err != nil {
		e.fail(envHealthAddr, fmt.Errorf("%w, or off", err))
	}
	return addr
}

func (e *env) bool(name string) bool {
	value := cmp.Or(e.get(name), "false")
	on, err := strconv.ParseBool(value)
	if err != nil {
		e.reject(name, value, "true or false")
	}
	return on
}
