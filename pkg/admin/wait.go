package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ErrChangedMeanwhile is the error of a wait for a group that no longer has the definition that is
// waited for.
var ErrChangedMeanwhile = errors.New("changed meanwhile")

// WaitGroup waits until the group has the size and the definition of asked, as a change of it has
// returned them, runs exactly that many instances, and has no other managed instances than draining
// ones, whose IDs it returns with the group. It ends with ErrChangedMeanwhile if another change
// gives the group another size or definition. progress, if not nil, is called first and each time
// the group's numbers or conditions change. The result has the group's instances if with says so. On an error it
// is the group as last seen.
func (c *Client) WaitGroup(
	ctx context.Context, shard client.Shard, asked Group, with client.Parts, progress func(Group),
) (g Group, draining []string, err error) {
	key := asked.GetKey()
	req := &nstancev1.GetGroupRequest{Key: key, OmitInstances: true}
	shown := ""
	for g = asked; ; {
		found, err := groupStatus(ctx, c, []client.Shard{shard}, req)
		switch {
		case ctx.Err() != nil:
			return g, nil, unfinished(shard, g, asked, ctx.Err())
		case err != nil && !cutOff(err):
			return g, nil, err
		case err == nil:
			g = found[0]
			if changed := changedFields(asked, g); len(changed) > 0 {
				return g, nil, c.changedMeanwhile(ctx, shard, asked, g, changed)
			}
			if now := progressOf(g); progress != nil && now != shown {
				shown = now
				progress(g)
			}
			if g.GetActualSize() == g.GetSize() && g.GetPendingSize() == 0 {
				if with.Instances && req.GetOmitInstances() {
					req.OmitInstances = false
					continue
				}
				draining, err = c.drainingOf(ctx, shard, key)
				return g, draining, err
			}
		}
		req.OmitInstances = true
		if retry.Wait(ctx, waitInterval) != nil {
			return g, nil, unfinished(shard, g, asked, ctx.Err())
		}
	}
}

// waitInterval is the polling interval. Servers answer from memory, so polling is cheap.
const waitInterval = 200 * time.Millisecond

// cutOff reports whether a read ended without an answer, such as at the server's end of the
// deadline or of its term. It can be repeated.
func cutOff(err error) bool {
	code := status.Code(err)
	return code == codes.Canceled || code == codes.DeadlineExceeded
}

// progressOf returns a text that changes with the group's numbers and conditions.
func progressOf(g Group) string {
	text := fmt.Sprint(g.GetSize(), g.GetActualSize(), g.GetPendingSize(), g.GetDrainingSize())
	return text + Troubles(g)
}

// Troubles returns the types and messages of a group's conditions, without what its numbers say;
// empty if there are none.
func Troubles(g Group) string {
	var out []string
	for _, c := range g.GetConditions() {
		if c.GetMessage() != "" && !isOfSizes(c) {
			out = append(out, c.GetType()+": "+strings.TrimSpace(c.GetMessage()))
		}
	}
	return strings.Join(out, "; ")
}

// isOfSizes reports whether a condition says no more than the group's numbers.
func isOfSizes(c *nstancev1.Condition) bool {
	return c.GetType() == "Ready" && (c.GetMessage() == "" || c.GetReason() == "NotAtSize")
}

// changedFields returns the names of the values in which a group's definition differs.
func changedFields(asked, now Group) []string {
	var names []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"size", asked.GetSize() == now.GetSize()},
		{"template", asked.GetTemplate() == now.GetTemplate()},
		{"instance_type", asked.GetInstanceType() == now.GetInstanceType()},
		{"subnet_pool", asked.GetSubnetPool() == now.GetSubnetPool()},
		{"vars", proto.Equal(asked.GetVars(), now.GetVars())},
		{"max_surge", asked.GetMaxSurge() == now.GetMaxSurge()},
		{"on_demand", proto.Equal(asked.GetOnDemand(), now.GetOnDemand())},
	} {
		if !f.same {
			names = append(names, f.name)
		}
	}
	return names
}

// changedMeanwhile returns the error of a wait for a definition that another change replaced.
func (c *Client) changedMeanwhile(ctx context.Context, shard client.Shard, asked, now Group, changed []string) error {
	to := strings.Join(changed, ", ") // which values
	if changed[0] == "size" {
		to = fmt.Sprintf("from %d to %d", asked.GetSize(), now.GetSize())
	}
	return fmt.Errorf("wait for group %s of shard %s: %w%s: %s; the wait is over, and what the group runs is no longer this command's",
		now.GetKey(), shard.ID, ErrChangedMeanwhile, c.changer(ctx, shard, now, changed), to)
}

// changer returns " by" and the last one that changed a value of a group, as far as the shard's
// events tell; empty otherwise.
func (c *Client) changer(ctx context.Context, shard client.Shard, now Group, changed []string) string {
	all, _, err := c.Events(ctx, []client.Shard{shard}, EventQuery{Group: now.GetKey()})
	if err != nil {
		return "" // the wait's own error matters more
	}
	for _, h := range slices.Backward(all) {
		if h.GetKind() != string(fleet.EventChange) {
			continue
		}
		for _, x := range h.GetChanges() {
			if slices.Contains(changed, x.GetName()) && (x.GetName() != "size" || x.GetTo() == fmt.Sprint(now.GetSize())) {
				return " by " + h.By()
			}
		}
	}
	return ""
}

// ErrUnfinished is the error of a wait that was interrupted, or took too long. What it waited for is
// stored and stays asked for.
var ErrUnfinished = errors.New("the wait is unfinished")

// endedError is an ErrUnfinished, in words.
type endedError struct{ cause error }

func (e endedError) Error() string {
	if errors.Is(e.cause, context.DeadlineExceeded) {
		return "it took longer than --timeout"
	}
	return "the wait was interrupted"
}

func (e endedError) Unwrap() []error { return []error{ErrUnfinished, e.cause} }

// unfinished returns an error with the group's progress and conditions, and what the group is still
// asked to be.
func unfinished(shard client.Shard, g, asked Group, cause error) error {
	text := fmt.Sprintf("%d of %d running, %d pending", g.GetActualSize(), asked.GetSize(), g.GetPendingSize())
	if troubles := Troubles(g); troubles != "" {
		text += "; " + troubles
	}
	return fmt.Errorf("wait for group %s of shard %s: %w: %s; %s stays asked for %d; %d run", asked.GetKey(), shard.ID,
		endedError{cause}, text, asked.GetKey(), asked.GetSize(), g.GetActualSize())
}

func (c *Client) drainingOf(ctx context.Context, shard client.Shard, key string) ([]string, error) {
	all, err := c.ListInstances(ctx, []client.Shard{shard}, key, false)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, i := range all {
		if i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING && !i.GetOnDemand() {
			ids = append(ids, i.GetId())
		}
	}
	return ids, nil
}
