package asg

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/nstance/nstance/pkg/awsclient"
)

// inactiveFor is how long an inactive hook is retried. AWS reports a hook as inactive if it is
// completed, timed out or has a wrong name, but also if the call comes before the group has
// begun to wait.
const inactiveFor = 15 * time.Minute

// errInactive means that the hook may still become active.
var errInactive = errors.New("the hook is not active yet")

// complete completes the hook. A hook that stays inactive for inactiveFor counts as completed.
func (w *watch) complete(ctx context.Context) error {
	err := send(ctx, w.api.completeHook, &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: &w.cfg.Group, LifecycleHookName: &w.cfg.Hook, InstanceId: &w.instance,
		LifecycleActionResult: sdk.String("CONTINUE"),
	})
	switch {
	case err == nil:
		w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "hook completed", slog.String("hook", w.cfg.Hook))
	case inactive(err):
		err = w.notActive(ctx, time.Now())
	}
	return err
}

func inactive(err error) bool {
	return awsclient.Coded(err, "ValidationError") && strings.Contains(err.Error(), "No active Lifecycle Action")
}

func (w *watch) notActive(ctx context.Context, now time.Time) error {
	hook := slog.String("hook", w.cfg.Hook)
	if w.inactive.IsZero() {
		w.inactive = now
		w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "hook is not active: retrying", hook, slog.Duration("for", inactiveFor))
	}
	if now.Sub(w.inactive) < inactiveFor {
		return errInactive
	}
	w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn,
		"hook not completed: it was completed before, has timed out, or does not exist", hook)
	return nil
}
