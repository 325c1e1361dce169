package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun: what ends before a server is started, and with which code.
func TestRun(t *testing.T) {
	invalid := filepath.Join(t.TempDir(), "config.jsonc")
	if err := os.WriteFile(invalid, []byte(`{"clster": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--version"}, 0, "nstance-server version dev"},
		{[]string{"--help"}, 0, "Usage:"},
		{[]string{"--nothing"}, exitUsage, "--nothing"},
		{[]string{"one"}, exitUsage, `unexpected argument "one"`},
		{[]string{"one", "two"}, exitUsage, "at most 1"},
		{[]string{"--shard", "A"}, exitUsage, "--shard"},
		{[]string{"--shard", "a", "--log-format", "xml"}, exitUsage, `--log-format: "xml" is not a log format: want text or json`},
		{[]string{"--log-format", "json", "--validate", invalid}, exitFailed, "is not valid"},
		{[]string{"--shard", "a", "--storage-bucket", "b"}, exitUsage, `OTEL_EXPORTER_OTLP_ENDPOINT: "localhost:4318" is not valid`},
		{[]string{"--validate", invalid}, exitFailed, "is not valid"},
	} {
		var said strings.Builder
		if code := run(t.Context(), c.args, &said, &said); code != c.code || !strings.Contains(said.String(), c.says) {
			t.Errorf("%v: code %d, want %d, says %q", c.args, code, c.code, said.String())
		}
	}
}

// TestEnvironment: the flags that say where a shard's data is have their defaults in the environment.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct{ name, value, says string }{
		{"NSTANCE_SHARD", "A", `--shard: "A"`},
		{"NSTANCE_STORAGE_PROVIDER", "tape", `--storage-provider: "tape"`},
		{"NSTANCE_STORAGE_BUCKET", "", "--storage-bucket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("NSTANCE_SHARD", "a")
			t.Setenv("NSTANCE_STORAGE_PROVIDER", "dir")
			t.Setenv("NSTANCE_STORAGE_BUCKET", t.TempDir())
			t.Setenv(c.name, c.value)
			var said strings.Builder
			if code := run(t.Context(), nil, &said, &said); code != exitUsage || !strings.Contains(said.String(), c.says) {
				t.Errorf("code %d, want %d, says %q, want %q", code, exitUsage, said.String(), c.says)
			}
		})
	}
}
