package awsclient

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// InsecureVariable is the boolean variable that allows plain HTTP to remote object storage and
// secrets services.
const InsecureVariable = "NSTANCE_INSECURE_STORAGE"

// WithInsecure returns getenv with InsecureVariable set.
func WithInsecure(getenv func(string) string) func(string) string {
	return func(name string) string {
		if name == InsecureVariable {
			return "true"
		}
		return reader(getenv).Get(name)
	}
}

// CheckPlain refuses a plain HTTP URL of a remote host: the network could read and modify
// requests, including secrets, and only TLS authenticates the replies. Invalid URLs are left to
// the caller. variable names the source of the URL.
func CheckPlain(variable, raw string) error {
	u, err := url.Parse(raw)
	if err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		return fmt.Errorf("%s is %q, plain HTTP to a remote host: want https:// or, on a trusted network, "+
			"--insecure-storage (%s=true)", variable, u.Redacted(), InsecureVariable)
	}
	return nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
