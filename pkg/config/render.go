package config

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// maxRendered bounds the output of one rendering, in bytes.
	maxRendered = 4 << 20
	// maxWrites bounds the iterations of loops.
	maxWrites = 1 << 18
)

// Facts are the data of templates, used as {{ .Instance.ID }}. An empty fact is missing, and
// using a missing fact is an error; has checks for it: {{ if has .Instance "IP6" }}.
type Facts struct {
	Instance InstanceFacts
	Cluster  ClusterFacts
	Server   ServerFacts
	Provider ProviderFacts
	Vars     map[string]any    // merged
	Image    map[string]string // the ID of every image that was found, by its name in the config
	Nonce    string            // available in userdata only
}

// InstanceFacts describe the rendered instance. NodeProviderID is what its kubelet has to set
// as the provider ID of its Node; it is missing until the machine exists.
type InstanceFacts struct{ ID, Kind, Arch, Type, Hostname, FQDN, IP4, IP6, NodeProviderID string }

// ClusterFacts describe the cluster. CACert is PEM.
type ClusterFacts struct{ ID, CACert string }

// ServerFacts are the addresses of the shard's servers. An address may be a comma-separated
// list.
type ServerFacts struct{ Shard, RegistrationAddr, AgentAddr, OperatorAddr string }

// ProviderFacts are the provider's fields in the config.
type ProviderFacts struct{ Kind, Region, Zone string }

// groups lists the facts with fixed names, empty ones included.
func (f Facts) groups() map[string]map[string]string {
	i, c, s, p := f.Instance, f.Cluster, f.Server, f.Provider
	return map[string]map[string]string{
		"Instance": {
			"ID": i.ID, "Kind": i.Kind, "Arch": i.Arch, "Type": i.Type,
			"Hostname": i.Hostname, "FQDN": i.FQDN, "IP4": i.IP4, "IP6": i.IP6,
			"NodeProviderID": i.NodeProviderID,
		},
		"Cluster":  {"ID": c.ID, "CACert": c.CACert},
		"Server":   {"Shard": s.Shard, "RegistrationAddr": s.RegistrationAddr, "AgentAddr": s.AgentAddr, "OperatorAddr": s.OperatorAddr},
		"Provider": {"Kind": p.Kind, "Region": p.Region, "Zone": p.Zone},
	}
}

// data returns what a template sees: maps, in which an absent key is an error.
func (f Facts) data(nonce bool) map[string]any {
	out := map[string]any{"Vars": withoutNulls(f.Vars), "Image": present(f.Image)}
	for name, fields := range f.groups() {
		out[name] = present(fields)
	}
	if nonce && f.Nonce != "" {
		out["Nonce"] = f.Nonce
	}
	return out
}

func present(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		if v != "" {
			out[k] = v
		}
	}
	return out
}

// withoutNulls drops nulls, which a template would print as "<no value>".
func withoutNulls(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		switch v := v.(type) {
		case nil:
		case map[string]any:
			out[k] = withoutNulls(v)
		default:
			out[k] = v
		}
	}
	return out
}

type renderer struct {
	templates *Templates
	data      map[string]any
	bytes     int // bytes left
	writes    int // writes left
}

func newRenderer(templates *Templates, data map[string]any) *renderer {
	return &renderer{templates: templates, data: data, bytes: maxRendered, writes: maxWrites}
}

// value renders in place.
func (r *renderer) value(path string, v any) (_ any, err error) {
	switch v := v.(type) {
	case string:
		return r.text(path, v)
	case map[string]any:
		for _, k := range sortedKeys(v) {
			if v[k], err = r.value(join(path, k), v[k]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = r.value(at(path, i), v[i]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func (r *renderer) text(path, text string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := r.templates.parse(text)
	if err != nil {
		return "", fmt.Errorf("render %s: %w", path, err)
	}
	out := &boundedBuffer{limits: r}
	if err := t.Execute(out, r.data); errors.Is(err, errTooMuch) {
		return "", fmt.Errorf("render %s: %w", path, errTooMuch)
	} else if err != nil {
		return "", fmt.Errorf("render %s: %s", path, tidyTemplateError(err))
	}
	if strings.Contains(out.text.String(), "<no value>") {
		return "", fmt.Errorf("render %s: the result contains %q: something that the template uses has no value", path, "<no value>")
	}
	return out.text.String(), nil
}

var errTooMuch = fmt.Errorf("the template produces more than %d bytes or loops more than %d times", maxRendered, maxWrites)

type boundedBuffer struct {
	text   strings.Builder
	limits *renderer
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.limits.bytes -= len(p)
	b.limits.writes--
	if b.limits.bytes < 0 || b.limits.writes < 0 {
		return 0, errTooMuch
	}
	return b.text.Write(p)
}
