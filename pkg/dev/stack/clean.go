package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/retry"
	"github.com/shirou/gopsutil/v4/process"
)

// Clean kills every process that a stack in cfg.Temp left running: servers first, then agents, then
// object storage. It may be called when nothing runs.
func Clean(ctx context.Context, cfg Config) error {
	files, err := filepath.Glob(filepath.Join(cfg.Temp, "run", "*.pid"))
	if err != nil {
		return fmt.Errorf("find processes left behind: %w", err)
	}
	var errs []error
	var last string
	for _, file := range files {
		if filepath.Base(file) == "s3.pid" {
			last = file
			continue
		}
		errs = append(errs, endProcess(ctx, file, cfg.Bin))
	}
	errs = append(errs, endAgents(ctx, cfg))
	if last != "" {
		errs = append(errs, endProcess(ctx, last, cfg.Bin))
	}
	return errors.Join(errs...)
}

// endProcess kills the process of a pid file, unless the pid belongs to an unrelated process by
// now.
func endProcess(ctx context.Context, file, bin string) error {
	body, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read pid file: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil {
		return fmt.Errorf("read pid file %s: %w", file, err)
	}
	for isOurs(ctx, pid, bin) {
		// It may have ended already.
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if err := retry.Wait(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	return os.Remove(file)
}

func isOurs(ctx context.Context, pid int, bin string) bool {
	p, err := process.NewProcessWithContext(ctx, int32(pid))
	if err != nil {
		return false
	}
	if states, err := p.StatusWithContext(ctx); err == nil && len(states) > 0 && states[0] == process.Zombie {
		return false
	}
	line, err := p.CmdlineWithContext(ctx)
	return err == nil && strings.Contains(line, bin)
}
