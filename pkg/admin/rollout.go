package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/retry"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// rolloutInterval is the polling interval of a rollout, which takes minutes. Each poll lists all groups. The
// first comes after it, since most files arrive within a second.
const rolloutInterval = time.Second

// WaitRollout waits until the config with that etag is rolled out in a shard: until each group of the
// caller's tenant has been seen to run its size in instances of its present definition that have the
// newest version of their files, and no others but draining ones. Groups that come later are not waited
// for. It ends with ErrChangedMeanwhile if the shard runs another config, and with an error if all groups
// that it still waits for are held: nothing is replaced in them before they are changed or reset. progress
// is called with a line about a group that is not rolled out, at first and each time that it changes.
func (c *Client) WaitRollout(ctx context.Context, shard client.Shard, etag string, progress func(string)) error {
	r := rollout{shown: map[string]string{}, progress: progress}
	for {
		_ = retry.Wait(ctx, rolloutInterval) // a look after ctx has ended fails
		err := c.look(ctx, shard, etag, &r)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("wait for the config of shard %s: %w: %s; the config stays in effect, and ending the wait does not stop "+
				"the rollout", shard.ID, endedError{ctx.Err()}, r.remains())
		case err != nil && !cutOff(err):
			return fmt.Errorf("wait for the config of shard %s: %w", shard.ID, err)
		case err == nil && len(r.left) == 0:
			return nil
		}
	}
}

// look updates what a rollout still waits for. The config is looked at last: another one that became
// active meanwhile may be what the groups are listed by.
func (c *Client) look(ctx context.Context, shard client.Shard, etag string, r *rollout) error {
	groups, err := c.ListGroups(ctx, []client.Shard{shard}, client.Parts{})
	if err != nil {
		return err
	}
	status, err := c.ConfigStatus(ctx, []client.Shard{shard})
	if err != nil {
		return err
	}
	if now := status[0]; !now.GetRunningApplied() && now.GetEtag() != etag {
		return fmt.Errorf("%w: the shard runs the config with etag %s, and this wait is for %s", ErrChangedMeanwhile, now.GetEtag(), etag)
	}
	return r.see(groups)
}

// rollout is a wait for the groups of a shard.
type rollout struct {
	left     map[string]Group  // as last seen; nil: not listed yet
	shown    map[string]string // the line last shown, by group
	progress func(string)
}

// see notes the shard's groups. It returns an error if all that are waited for are held.
func (r *rollout) see(groups []Group) error {
	before, first := r.left, r.left == nil
	r.left = map[string]Group{}
	var held []error
	for _, g := range groups {
		_, awaited := before[g.GetKey()]
		delete(before, g.GetKey())
		done := rolledOut(g)
		if !awaited && !first || first && done {
			continue
		}
		r.show(g.GetKey(), rolloutOf(g))
		if done {
			continue
		}
		r.left[g.GetKey()] = g
		if why := heldBy(g); why != nil {
			held = append(held, why)
		}
	}
	for key := range before {
		r.show(key, key+": gone")
	}
	if len(held) < len(r.left) {
		return nil
	}
	return errors.Join(held...)
}

func (r *rollout) show(key, line string) {
	if r.shown[key] != line {
		r.shown[key] = line
		r.progress(line)
	}
}

// remains says which groups are not rolled out.
func (r *rollout) remains() string {
	if r.left == nil {
		return "its groups have not been listed yet"
	}
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(r.left)) {
		texts = append(texts, rolloutOf(r.left[key]))
	}
	if more := len(texts) - maxInstead; more > 0 {
		texts = append(texts[:maxInstead], fmt.Sprintf("and %d more groups", more))
	}
	return strings.Join(texts, "; ")
}

// rolledOut reports whether a group runs its size in instances of its present definition that have the
// newest version of their files, and no others but draining ones.
func rolledOut(g Group) bool {
	n := g.GetSize()
	return !Refuses(g) && g.GetActualSize() == n && g.GetPendingSize() == 0 && g.GetUpToDateSize() == n && g.GetFilesUpToDateSize() == n
}

// Refuses reports whether a group does not become what is asked for, since that rollout was aborted.
func Refuses(g Group) bool {
	return slices.ContainsFunc(g.GetConditions(), func(c *nstancev1.Condition) bool {
		return c.GetType() == "RolloutAborted" && c.GetReason() == "Refused"
	})
}

// heldBy returns an error if a group does not get there before it is changed or reset: a disabled one
// does nothing, and one whose record is missing removes and replaces none of its working instances.
func heldBy(g Group) error {
	for _, c := range g.GetConditions() {
		missing := c.GetType() == "GroupRecordMissing" && (g.GetUpToDateSize() < g.GetActualSize() || g.GetActualSize() > g.GetSize())
		if missing || c.GetType() == "Disabled" || c.GetType() == "RolloutAborted" && Refuses(g) {
			return fmt.Errorf("group %s stays as it is: %s: %s", g.GetKey(), c.GetType(), strings.TrimSpace(c.GetMessage()))
		}
	}
	return nil
}

// rolloutOf says how far a group's rollout is, with its conditions.
func rolloutOf(g Group) string {
	text := fmt.Sprintf("%s: %d of %d new, %d pending, %d draining", g.GetKey(), g.GetUpToDateSize(), g.GetSize(), g.GetPendingSize(),
		g.GetDrainingSize())
	if g.GetSize() == 0 {
		text = fmt.Sprintf("%s: %d running, %d pending, %d draining", g.GetKey(), g.GetActualSize(), g.GetPendingSize(), g.GetDrainingSize())
	}
	if n := g.GetActualSize() - g.GetFilesUpToDateSize(); n > 0 {
		text += fmt.Sprintf(", %d without the newest files", n)
	}
	if troubles := Troubles(g); troubles != "" {
		text += "; " + troubles
	}
	return text
}
