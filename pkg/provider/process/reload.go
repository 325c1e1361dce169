package process

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Reload makes each running agent exec the program that is now at Config.Agent. It stays the
// same process, so its instance lives on: see docs/agent.md.
func (p *Provider) Reload(ctx context.Context) error {
	names, err := p.names()
	if err != nil {
		return fmt.Errorf("reload agents: %w", err)
	}
	var errs []error
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, _ := p.folder(name) // listed names are valid
		b, born, err := f.birth()
		if err == nil && born {
			err = b.signal(syscall.SIGHUP)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reload the agent of instance %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
