//go:build integration

package containers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"

	"github.com/nstance/nstance/pkg/retry"
)

// runtimeName is the engine's name for integration/cluster/runtime.
const runtimeName = "nstance-integration"

const (
	engineSettings = "/etc/docker/daemon.json"
	enginePid      = "/var/run/docker.pid"
)

// Privileged returns the runtime for privileged containers on this engine; empty: the default one.
// A host without CAP_SYS_RESOURCE can't grant them all privileges, and needs a runtime that leaves
// out the missing ones. It is added to the engine's settings, which needs root, and stays there.
func (w *World) Privileged() string {
	w.Helper()
	whole, err := unlimited()
	w.Must(err)
	if whole {
		return ""
	}
	if _, err := os.Stat(enginePid); err != nil || os.Getuid() != 0 {
		miss(w.T, "this host lacks CAP_SYS_RESOURCE, and without root its engine (%s) can't be told of a runtime that does without", enginePid)
	}
	w.Must(w.register())
	return runtimeName
}

// unlimited reports whether processes here may have CAP_SYS_RESOURCE, number 24.
func unlimited() (bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	_, rest, _ := strings.Cut(string(status), "CapBnd:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return set&(1<<24) != 0, err
}

// register builds the runtime and adds it to the engine's settings. Its file is named by its
// content, so that containers which use another version can continue.
func (w *World) register() error {
	fresh := filepath.Join(w.Dir, runtimeName)
	build := exec.CommandContext(w.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", fresh, "./integration/cluster/runtime")
	build.Dir, build.Env = w.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the runtime: %w: %s", err, out)
	}
	body, err := os.ReadFile(fresh)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	keep := exec.CommandContext(w.Context(), filepath.Join(w.Root, ".ci", "cached"), "runtime/"+hex.EncodeToString(sum[:8]), "cp", fresh)
	folder, err := keep.Output()
	if err != nil {
		return fmt.Errorf("keep the runtime: %w", err)
	}
	program := filepath.Join(strings.TrimSpace(string(folder)), runtimeName)
	before, changed, err := tell(program)
	if err != nil || !changed {
		return err
	}
	if err = reload(w.Context(), w.API); err == nil {
		return nil
	}
	// If the engine does not read this file, or can't, the file is restored.
	if before == nil {
		return errors.Join(err, os.Remove(engineSettings))
	}
	return errors.Join(err, replace(engineSettings, before))
}

// tell writes the runtime into the engine's settings, which are otherwise kept, and returns the
// file's earlier content; nil: it did not exist.
func tell(program string) (before []byte, changed bool, err error) {
	text, err := os.ReadFile(engineSettings)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, err
	}
	before = text
	settings := map[string]any{}
	if len(bytes.TrimSpace(text)) > 0 {
		if err := json.Unmarshal(text, &settings); err != nil {
			return nil, false, fmt.Errorf("%s: %w", engineSettings, err)
		}
	}
	runtimes, _ := settings["runtimes"].(map[string]any)
	if one, _ := runtimes[runtimeName].(map[string]any); one["path"] == program {
		return before, false, nil
	}
	if runtimes == nil {
		runtimes = map[string]any{}
	}
	runtimes[runtimeName] = map[string]any{"path": program}
	settings["runtimes"] = runtimes
	if text, err = json.MarshalIndent(settings, "", "  "); err != nil {
		return nil, false, err
	}
	return before, true, replace(engineSettings, append(text, '\n'))
}

// replace writes a file atomically.
func replace(path string, text []byte) error {
	fresh := path + ".new"
	if err := os.WriteFile(fresh, text, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// reload makes the engine reload its settings, which ends no container.
func reload(ctx context.Context, api *client.Client) error {
	text, err := os.ReadFile(enginePid)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("%s: %w", enginePid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		return fmt.Errorf("have the engine read %s: %w", engineSettings, err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		said, err := api.Info(ctx, client.InfoOptions{})
		if _, known := said.Info.Runtimes[runtimeName]; err == nil && known {
			return nil
		}
		if retry.Wait(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("the engine does not know the runtime after reading %s: %w", engineSettings, errors.Join(err, ctx.Err()))
		}
	}
}
