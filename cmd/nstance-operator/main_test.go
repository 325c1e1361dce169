package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun: what ends before anything is started, and with which code.
func TestRun(t *testing.T) {
	valid := filepath.Join(t.TempDir(), "config.yaml")
	text := "cluster_id: example\nshards: {one: {registration_addr: \"h:1\", operator_addr: \"h:2\"}}\n"
	if err := os.WriteFile(valid, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("NSTANCE_NAMESPACE", "nstance")
	ready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "it is "+r.URL.Path)
	}))
	defer ready.Close()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--probe", ready.URL + "/readyz"}, 0, "it is /readyz"},
		{[]string{"--probe", ready.URL + "/healthz"}, 1, "500 Internal Server Error: it is /healthz"},
		{[]string{"--probe", "readyz"}, 1, "--probe"},
		{[]string{"--version"}, 0, "nstance-operator dev"},
		{[]string{"--help"}, 0, "usage: nstance-operator"},
		{[]string{"--nothing"}, 2, "-nothing"},
		{[]string{"--config", filepath.Join(t.TempDir(), "none.yaml")}, 2, "none.yaml"},
		{[]string{"--config", valid, "--namespace", "A"}, 2, "--namespace"},
		{[]string{"--config", valid}, 1, "find the API server"},
	} {
		var said strings.Builder
		if code := run(c.args, &said, &said); code != c.code || !strings.Contains(said.String(), c.says) {
			t.Errorf("%v: code %d, want %d, says %q", c.args, code, c.code, said.String())
		}
	}
}
