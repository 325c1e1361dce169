package awstest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The protocol's paths, headers and limits
// (docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html).
const (
	tokenPath    = "/latest/api/token" //nolint:gosec // where tokens come from
	tokenHeader  = "X-Aws-Ec2-Metadata-Token"
	ttlHeader    = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxTTL       = 21600 // seconds
	metadataRoot = "/latest/meta-data/"
	documentPath = "/latest/dynamic/instance-identity/document"
)

// metadata is the metadata service of one machine.
type metadata struct {
	c  *Cloud
	id string

	mu     sync.Mutex
	tokens map[string]time.Time // with their expiry
}

// Metadata returns the metadata service of a machine: version 2, which requires a token. It shows
// the present, and closes connections once the machine is gone.
func (c *Cloud) Metadata(instance string) http.Handler {
	return &metadata{c: c, id: instance, tokens: map[string]time.Time{}}
}

// MetadataService is the action with which FailNext names the requests to all metadata services. A
// Fault's Status, if not 0, is their reply. Calls does not return them.
const MetadataService = "metadata"

// nextFault returns the fault of a request.
func (d *metadata) nextFault() Fault {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	return d.c.nextFault(MetadataService)
}

// ServeHTTP implements http.Handler.
func (d *metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m, f := d.machine(), d.nextFault()
	if f.Delay > 0 && d.c.cfg.Wait(r.Context(), f.Delay) != nil {
		return // the client has gone
	}
	switch {
	case m == nil || f.Dropped || f.Lost:
		hangUp(w)
	case f.Status != 0:
		w.WriteHeader(f.Status)
	case r.URL.Path == tokenPath:
		d.issueToken(w, r)
	case r.Method != http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case !d.validToken(r.Header.Get(tokenHeader)):
		w.WriteHeader(http.StatusUnauthorized)
	default:
		d.serveValue(w, m, r.URL.Path)
	}
}

// machine returns the machine while it exists.
func (d *metadata) machine() *machine {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if m, err := d.c.find(d.id); err == nil && m.occupiesCapacity(d.c.cfg.Now()) {
		return m
	}
	return nil
}

// issueToken creates a token. A request through a proxy gets none.
func (d *metadata) issueToken(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.Atoi(r.Header.Get(ttlHeader))
	switch {
	case r.Method != http.MethodPut:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case r.Header.Get("X-Forwarded-For") != "":
		w.WriteHeader(http.StatusForbidden)
		return
	case err != nil || seconds < 1 || seconds > maxTTL:
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	d.c.mu.Lock()
	text := hexID(d.c.random) + "=="
	d.c.mu.Unlock()
	d.mu.Lock()
	d.tokens[text] = d.c.cfg.Now().Add(time.Duration(seconds) * time.Second)
	d.mu.Unlock()
	w.Header().Set(ttlHeader, strconv.Itoa(seconds))
	_, _ = w.Write([]byte(text)) // the error is that of a client that has gone
}

// validToken reports whether a token has not expired.
func (d *metadata) validToken(token string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	end, ok := d.tokens[token]
	return ok && d.c.cfg.Now().Before(end)
}

// serveValue writes the value at a path.
func (d *metadata) serveValue(w http.ResponseWriter, m *machine, path string) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	var said string
	var ok bool
	if path == documentPath {
		said, ok = identityDocument(d.c, m), true
	} else if rest, below := strings.CutPrefix(path, metadataRoot); below {
		said, ok = lookup(d.c, m, rest)
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte(said)) // the error is that of a client that has gone
}

// lookup returns the value at a path below meta-data; ok is false if there is none. The caller
// holds the lock.
func lookup(c *Cloud, m *machine, path string) (said string, ok bool) {
	s, _ := c.cfg.subnet(m.launch.subnet)
	switch path {
	case "instance-id":
		return m.id, true
	case "instance-type":
		return m.launch.kind, true
	case "placement/region":
		return c.cfg.Region, true
	case "placement/availability-zone":
		return s.Zone, true
	case "local-ipv4":
		return m.address.String(), true
	case "mac":
		nics := m.attached(c.cfg.Now())
		return nics[0].mac, true
	case "instance-life-cycle":
		if m.launch.spot {
			return "spot", true
		}
		return "on-demand", true
	case "spot/instance-action":
		if m.notice.IsZero() {
			return "", false
		}
		return jsonText(map[string]string{"action": "terminate", "time": m.notice.UTC().Format(time.RFC3339)}), true
	}
	if rest, below := strings.CutPrefix(path, "network/interfaces/macs/"); below {
		return lookupInterface(c, m, rest)
	}
	if rest, below := strings.CutPrefix(path, "iam/security-credentials"); below && c.cfg.Role != "" {
		return lookupCredentials(c, strings.TrimPrefix(rest, "/"))
	}
	return "", false
}

// lookupInterface returns a property of one of the machine's interfaces, by MAC address, or the
// list of them. Interfaces that are still attaching are not among them.
func lookupInterface(c *Cloud, m *machine, path string) (string, bool) {
	now := c.cfg.Now()
	address, what, _ := strings.Cut(path, "/")
	var all strings.Builder
	for _, k := range m.attached(now) {
		p, h, _ := k.stateAt(now)
		if p.status == "attaching" {
			continue
		}
		fmt.Fprintf(&all, "%s/\n", k.mac)
		if k.mac != address {
			continue
		}
		switch what {
		case "device-number":
			return strconv.Itoa(p.attachment.index), true
		case "interface-id":
			return k.id, true
		case "mac":
			return k.mac, true
		case "subnet-id":
			return k.subnet, true
		case "local-ipv4s":
			return lines(h.ipv4), true
		case "ipv6s":
			return lines(h.ipv6), len(h.ipv6) > 0
		}
	}
	return strings.TrimSpace(all.String()), path == ""
}

func lines(addrs []netip.Addr) string { return strings.Join(addressStrings(addrs), "\n") }

// lookupCredentials returns the name of the machine's role, or its credentials, which are renewed
// after half of their lifetime.
func lookupCredentials(c *Cloud, name string) (string, bool) {
	switch name {
	case "":
		return c.cfg.Role, true
	case c.cfg.Role:
	default:
		return "", false
	}
	from := c.cfg.Now().Truncate(c.cfg.RoleLife / 2).UTC()
	sum := sha256.Sum256([]byte(c.cfg.Role + from.String()))
	id := "ASIA" + strings.ToUpper(hex.EncodeToString(sum[:8]))
	keys := role{secret: hex.EncodeToString(sum[8:28]), token: hex.EncodeToString(sum[:]), end: from.Add(c.cfg.RoleLife)}
	c.roles[id] = keys
	return jsonText(map[string]string{
		"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": from.Format(time.RFC3339), "AccessKeyId": id,
		"SecretAccessKey": keys.secret, "Token": keys.token, "Expiration": keys.end.Format(time.RFC3339),
	}), true
}

// identityDocument returns the document with which a machine proves its identity.
func identityDocument(c *Cloud, m *machine) string {
	s, _ := c.cfg.subnet(m.launch.subnet)
	return jsonText(map[string]string{
		"version": "2017-09-30", "accountId": c.cfg.Account, "region": c.cfg.Region, "availabilityZone": s.Zone, "instanceId": m.id,
		"instanceType": m.launch.kind, "imageId": m.launch.image.ID, "architecture": m.launch.image.Arch, "privateIp": m.address.String(),
		"pendingTime": m.at.UTC().Format(time.RFC3339),
	})
}

// jsonText returns a JSON object with sorted keys.
func jsonText(fields map[string]string) string {
	text, _ := json.MarshalIndent(fields, "", "  ") // strings can always be encoded
	return string(text)
}
