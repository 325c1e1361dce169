package settings

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nstance/nstance/pkg/rpc"
)

// env collects the problems of one reading. A variable that is set to nothing counts
// as not set.
type env struct {
	lookup   func(string) (string, bool)
	problems []error
}

func (e *env) get(name string) string {
	value, _ := e.lookup(name)
	return strings.TrimSpace(value)
}

func (e *env) reject(field, value, want string) {
	e.problems = append(e.problems, fmt.Errorf("%s: %.80q is not valid: want %s", field, value, want))
}

// name is that of an object in Kubernetes.
func (e *env) name(variable, otherwise string) string {
	value := cmp.Or(e.get(variable), otherwise)
	if wrong := validation.IsDNS1123Subdomain(value); len(wrong) > 0 {
		e.reject(variable, value, "the name of an object, of at most 253 lowercase letters, digits, inner hyphens and dots")
	}
	return value
}

// apart refuses one Secret for two purposes, since one would overwrite the other.
func (e *env) apart(names map[string]string) {
	seen := map[string]string{}
	for _, variable := range slices.Sorted(maps.Keys(names)) {
		name := names[variable]
		if other := seen[name]; other != "" {
			e.reject(variable, name, "another Secret than that of "+other)
		}
		seen[name] = variable
	}
}

// endpoint is a URL, or host:port.
func (e *env) endpoint(variable string) string {
	value := e.get(variable)
	if value == "" {
		return ""
	}
	if _, err := rpc.ParseAddr(value); err == nil {
		return value
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		e.reject(variable, value, `where an API server is, such as "https://10.0.0.1:6443" or "10.0.0.1:6443"`)
	}
	return value
}

func (e *env) bool(variable string) bool {
	value := cmp.Or(e.get(variable), "false")
	on, err := strconv.ParseBool(value)
	if err != nil {
		e.reject(variable, value, "true or false")
	}
	return on
}
