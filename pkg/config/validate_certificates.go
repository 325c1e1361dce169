package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// MaxCertificateTTL is the longest life of a certificate, in hours.
const MaxCertificateTTL = 10 * 365 * 24

func (v *validator) certificates() {
	for _, name := range sortedKeys(v.shard.Certificates) {
		path, c := join("certificates", name), v.shard.Certificates[name]
		v.label(path, name)
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

// nameList checks each text as a template, and those that are no templates with
// check.
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
		return fmt.Errorf("%.80q is no DNS name", s)
	}
	return nil
}

func checkIP(s string) error {
	if ip, err := netip.ParseAddr(s); err != nil || ip.Zone() != "" {
		return fmt.Errorf("%.80q is no IP address", s)
	}
	return nil
}

const spiffeScheme = "spiffe"

// CheckCertificateURI reports why a certificate template may not ask for uri,
// which is rendered; nil when it may. The ids below spiffe://{cluster}/ say who
// is an agent, an operator or a server, so only those three ways of
// registration hand them out. Scheme and trust domain are compared without
// regard to case (SPIFFE-ID, section 2).
func CheckCertificateURI(clusterID, uri string) error {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme == "" {
		return fmt.Errorf("%.80q is no absolute URI", uri)
	}
	if !strings.EqualFold(u.Scheme, spiffeScheme) {
		return nil
	}
	if u.Host == "" || u.User != nil || u.Port() != "" {
		return fmt.Errorf("%.80q is no SPIFFE id: want spiffe://{trust domain}/{path}", uri)
	}
	if strings.EqualFold(u.Hostname(), clusterID) {
		return fmt.Errorf("%.80q is reserved: spiffe://%s/ names agents, operators and servers", uri, clusterID)
	}
	return nil
}

// checkURIText judges a URI before it is rendered: whatever decides whether it
// is reserved has to be written out.
func checkURIText(clusterID, uri string) error {
	literal, _, isTemplate := strings.Cut(uri, "{{")
	if !isTemplate {
		return CheckCertificateURI(clusterID, uri)
	}
	scheme, rest, ok := strings.Cut(literal, ":")
	if !ok {
		return errors.New("the scheme has to be written out, not rendered")
	}
	if !strings.EqualFold(scheme, spiffeScheme) {
		return nil
	}
	domain, _, ok := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
	if !ok {
		return errors.New("the trust domain of a SPIFFE id has to be written out, not rendered")
	}
	return CheckCertificateURI(clusterID, "spiffe://"+domain+"/")
}
