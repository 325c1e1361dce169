package config_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
)

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func TestReservedURIs(t *testing.T) {
	for uri, allowed := range map[string]bool{
		"https://example.com/x":      true,
		"urn:uuid:1":                 true,
		"spiffe://other/ns/default":  true,
		"spiffe://c-2/x":             true,
		"spiffe://c/default/agent/x": false,
		"spiffe://c":                 false,
		"spiffe://C/server/dev-1":    false,
		"SPIFFE://c/x":               false,
		"spiffe://c:1/x":             false,
		"spiffe://u@c/x":             false,
		"spiffe://u@other/x":         false,
		"spiffe:///x":                false,
		"spiffe:c/x":                 false,
		"spiffe://%63/x":             false,
		"//c/x":                      false,
		"":                           false,
		"x\x00":                      false,
	} {
		if err := config.CheckCertificateURI("c", uri); (err == nil) != allowed {
			t.Errorf("%q: %v, want allowed %v", uri, err, allowed)
		}
	}
	for uri, allowed := range map[string]bool{
		"https://{{ .Instance.Hostname }}/": true,
		"spiffe://other/{{ .Instance.ID }}": true,
		"spiffe://c/{{ .Instance.ID }}":     false,
		"spiffe://{{ .Cluster.ID }}/x":      false,
		"spiffe://c{{ .Vars.x }}/x":         false,
		"spiffe:{{ .Vars.x }}":              false,
		"{{ .Vars.scheme }}://c/x":          false,
		"spif{{ .Vars.x }}fe://c/x":         false,
	} {
		text := with(`"certificates": { "x": { "kind": "peer", "cn": "x", "uri": [` + quoted(uri) + `] } }`)
		_, err := config.Parse([]byte(text))
		if (err == nil) != allowed || err != nil && !strings.HasPrefix(err.Error(), "certificates.x.uri[0]: ") {
			t.Errorf("%q: %v, want allowed %v", uri, err, allowed)
		}
	}
}
