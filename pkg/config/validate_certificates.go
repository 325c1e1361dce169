package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// MaxCertificateTTL is the maximum life of a certificate, in hours.
const MaxCertificateTTL = 10 * 365 * 24

func (v *validator) certificates() {
	for _, name := range sortedKeys(v.shard.Certificates) {
		path, c := join("certificates", name), v.shard.Certificates[name]
		v.label(path, name)
		accessOf(v).who(path+".tenants", c.Tenants)
		v.users = c.Tenants
		v.oneOf(path+".kind", c.Kind, "server", "client", "peer")
		v.given(path+".cn", c.CN, "a common name")
		v.text(path+".cn", c.CN, false)
		if c.TTL < 1 || c.TTL > MaxCertificateTTL {
			v.addf(path+".ttl", "%d is outside the limits: want 1 to %d hours", c.TTL, MaxCertificateTTL)
		}
		v.nameList(path+".organization", c.Organization, nil)
		v.nameList(path+".dns", c.DNS, checkDNSName)
		v.nameList(path+".ip", c.IP, checkIP)
		v.nameList(path+".uri", c.URI, nil)
		for i, uri := range c.URI {
			if err := checkURIText(v.shard.Cluster.ID, uri); err != nil {
				v.addf(at(path+".uri", i), "%v", err)
			}
		}
	}
}

// nameList checks each text as a template, and those that are not templates with check.
func (v *validator) nameList(path string, list []string, check func(string) error) {
	v.unique(path, list, "a name")
	for i, s := range list {
		v.text(at(path, i), s, false)
		if check == nil || s == "" || strings.Contains(s, "{{") {
			continue
		}
		if err := check(s); err != nil {
			v.addf(at(path, i), "%v", err)
		}
	}
}

var dnsPattern = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)

func checkDNSName(s string) error {
	if len(s) > 253 || !dnsPattern.MatchString(s) {
		return fmt.Errorf("%.80q is not a DNS name", s)
	}
	return nil
}

func checkIP(s string) error {
	if ip, err := netip.ParseAddr(s); err != nil || ip.Zone() != "" {
		return fmt.Errorf("%.80q is not an IP address", s)
	}
	return nil
}

const spiffeScheme = "spiffe"

// CheckCertificateURI returns an error if a certificate template may not render uri. The IDs
// below spiffe://{cluster}/ identify agents, operators and servers, so only their registration
// issues them. Scheme and trust domain are compared without regard to case (SPIFFE-ID, section
// 2).
func CheckCertificateURI(clusterID, uri string) error {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme == "" {
		return fmt.Errorf("%.80q is not an absolute URI", uri)
	}
	if !strings.EqualFold(u.Scheme, spiffeScheme) {
		return nil
	}
	if u.Host == "" || u.User != nil || u.Port() != "" {
		return fmt.Errorf("%.80q is not a SPIFFE id: want spiffe://{trust domain}/{path}", uri)
	}
	if strings.EqualFold(u.Hostname(), clusterID) {
		return fmt.Errorf("%.80q is reserved: spiffe://%s/ names agents, operators and servers", uri, clusterID)
	}
	return nil
}

// checkURIText checks a URI before it is rendered: the parts that determine whether it is
// reserved must be literal.
func checkURIText(clusterID, uri string) error {
	literal, _, isTemplate := strings.Cut(uri, "{{")
	if !isTemplate {
		return CheckCertificateURI(clusterID, uri)
	}
	scheme, rest, ok := strings.Cut(literal, ":")
	if !ok {
		return errors.New("the scheme must be literal, not rendered")
	}
	if !strings.EqualFold(scheme, spiffeScheme) {
		return nil
	}
	domain, _, ok := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
	if !ok {
		return errors.New("the trust domain of a SPIFFE ID must be literal, not rendered")
	}
	return CheckCertificateURI(clusterID, "spiffe://"+domain+"/")
}
