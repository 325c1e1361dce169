package release

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// flags are how programs are compiled: what .ko.yaml says, which is the one place.
type flags struct {
	Env     []string `json:"defaultEnv"`
	Flags   []string `json:"defaultFlags"`
	Ldflags []string `json:"defaultLdflags"`
}

// flags reads .ko.yaml.
func (b Builder) flags() (flags, error) {
	text, err := os.ReadFile(filepath.Join(b.Source, ".ko.yaml"))
	if err != nil {
		return flags{}, fmt.Errorf("read how programs are compiled: %w", err)
	}
	var f flags
	if err := yaml.Unmarshal(text, &f); err != nil {
		return flags{}, fmt.Errorf("read how programs are compiled: .ko.yaml: %w", err)
	}
	return f, nil
}

// CheckGo fails unless the Go that compiled this program is the one that .ko.yaml pins:
// compression is Go's, so its version is part of the digest of whatever is packed here.
func (b Builder) CheckGo() error {
	f, err := b.flags()
	if err != nil {
		return err
	}
	if pinned := "GOTOOLCHAIN=" + runtime.Version(); !slices.Contains(f.Env, pinned) {
		return fmt.Errorf("compiled by %s, and .ko.yaml pins another Go: set GOTOOLCHAIN to that, as make does", runtime.Version())
	}
	return nil
}

// places are the variables that say where Go keeps and gets things, and not how it
// compiles. People set them in the environment or with `go env -w`.
func places() []string {
	return []string{
		"GOAUTH", "GOCACHE", "GOINSECURE", "GOMODCACHE", "GONOPROXY", "GONOSUMDB", "GOPATH", "GOPRIVATE", "GOPROXY", "GOSUMDB", "GOVCS",
	}
}

// environment is what programs inherit: this process's environment without what would
// change a build, which is each variable of Go's and ko's own but for places, the time
// and version that are the commit's, and the zone in which ko would write a time. Then
// what .ko.yaml says, which turns Go's own configuration file off too.
func (b Builder) environment(ctx context.Context) ([]string, error) {
	f, err := b.flags()
	if err != nil {
		return nil, err
	}
	asked := exec.CommandContext(ctx, "go", append([]string{"env", "-json"}, places()...)...)
	asked.Dir = b.Source
	said, err := asked.Output()
	if err != nil {
		return nil, fmt.Errorf("ask go where it keeps things: %w", err)
	}
	var kept map[string]string
	if err := json.Unmarshal(said, &kept); err != nil {
		return nil, fmt.Errorf("ask go where it keeps things: %w", err)
	}
	var out []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		switch {
		case name == "GOMAXPROCS", name == "GOTMPDIR", strings.HasPrefix(name, "GOOGLE_"):
			out = append(out, variable)
		case strings.HasPrefix(name, "GO"), strings.HasPrefix(name, "CGO_"), strings.HasPrefix(name, "KO_"), name == "KOCACHE":
		case name == "SOURCE_DATE_EPOCH", name == "VERSION":
		default:
			out = append(out, variable)
		}
	}
	for name, value := range kept {
		if value != "" {
			out = append(out, name+"="+value)
		}
	}
	return append(append(out, "TZ=UTC"), f.Env...), nil
}
