package settings

import (
	"cmp"
	"maps"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nstance/nstance/pkg/env"
	"github.com/nstance/nstance/pkg/rpc"
)

// variables reads variables one by one and collects their problems.
type variables struct{ env.Reader }

// name reads the name of a Kubernetes object.
func (e *variables) name(variable, otherwise string) string {
	value := cmp.Or(e.Get(variable), otherwise)
	if wrong := validation.IsDNS1123Subdomain(value); len(wrong) > 0 {
		e.Reject(variable, value, "the name of an object, of at most 253 lowercase letters, digits, inner hyphens and dots")
	}
	return value
}

// apart rejects one Secret for two purposes, since one would overwrite the other.
func (e *variables) apart(names map[string]string) {
	seen := map[string]string{}
	for _, variable := range slices.Sorted(maps.Keys(names)) {
		name := names[variable]
		if other := seen[name]; other != "" {
			e.Reject(variable, name, "a Secret other than that of "+other)
		}
		seen[name] = variable
	}
}

// endpoint reads a URL or host:port.
func (e *variables) endpoint(variable string) string {
	value := e.Get(variable)
	if value == "" {
		return ""
	}
	if _, err := rpc.ParseAddr(value); err == nil {
		return value
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		e.Reject(variable, value, `the address of an API server, such as "https://10.0.0.1:6443" or "10.0.0.1:6443"`)
	}
	return value
}
