package stack

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"syscall"
)

// Foreground replaces one component of the running stack until ctx ends, and shows its output. With
// Watch it is rebuilt and restarted when its source changes, even if the stack itself does not
// watch.
func (f Flags) Foreground(ctx context.Context, name string, out io.Writer) (err error) {
	cfg, err := f.config(ctx, out)
	if err != nil {
		return err
	}
	if cfg, err = cfg.withKey(); err != nil {
		return err
	}
	all := append(specs(cfg), kubeSpecs(cfg)...)
	n := slices.IndexFunc(all, func(s Spec) bool { return s.Name == name })
	if n < 0 {
		return fmt.Errorf("no component %.80q in such a stack: want another name, or --kubernetes", name)
	}
	client := NewClient(cfg.Temp)
	if err := client.Stop(ctx, name, false); err != nil {
		return err
	}
	defer func() {
		if startErr := client.Start(context.WithoutCancel(ctx), name); err == nil {
			err = startErr
		}
	}()
	c := &component{spec: all[n], runDir: filepath.Join(cfg.Temp, "run"), out: out, log: cfg.Logger}
	watched := (&Stack{cfg: cfg, components: []*component{c}}).startWatch()
	if err := c.start(ctx); err != nil {
		return err
	}
	defer c.stop(syscall.SIGTERM)
	watched(ctx)
	<-ctx.Done()
	return nil
}
