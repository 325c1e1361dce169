package shardtest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// texts tracks the versions of config/ and applied/, and manual changes of the latter. Guarded by
// book.mu.
type texts struct {
	book     *book
	configs  [][]byte      // config/ as written, the latest last; nil: removed
	accepted [][]byte      // applied/ as servers wrote it, the latest last
	epoch    uint64        // of the latter
	altered  bool          // applied/ was changed manually since
	instead  *config.Shard // what it says then; nil: nothing
	// kept are the sizes of groups that a new leader made smaller while nothing in the store said
	// so: it compared a config with a changed applied/. They hold until a call or another config.
	kept map[fleet.GroupKey]int
	told map[string]bool // by life: it told that the config awaits confirmation
}

func newTexts(b *book) *texts {
	return &texts{book: b, kept: map[fleet.GroupKey]int{}, told: map[string]bool{}}
}

// accept checks and stores a config that a server accepted, by a write that was sent at a time,
// against what that server knows as the last accepted one. The caller holds the lock.
func (t *texts) accept(body []byte, sent time.Time) {
	next, err := config.ParseAccepted(body)
	if err != nil {
		return
	}
	last := t.book.applied
	header, _, _ := config.CutHeader(body)
	if t.altered && header.Epoch != t.epoch { // no leader knows more than the store says
		last = t.instead
		t.keep(next, header.Epoch)
	} else if len(t.accepted) > 0 && !bytes.Equal(textOf(t.accepted[len(t.accepted)-1]), textOf(body)) {
		clear(t.kept)
	}
	if !t.goesBack(header.Epoch, body) {
		t.book.shrinks.judgeConfig(last, next, header.Epoch, sent)
	}
	t.accepted = append(t.accepted, body)
	t.epoch, t.altered, t.instead = header.Epoch, false, nil
	t.book.applied = next
	t.book.rewant()
}

// goesBack reports whether a leader returns to a config that it accepted before: it runs that as long
// as it has not learned in time that its later writes of applied/ took effect.
func (t *texts) goesBack(epoch uint64, body []byte) bool {
	return slices.ContainsFunc(t.accepted, func(earlier []byte) bool {
		header, _, _ := config.CutHeader(earlier)
		return header.Epoch == epoch && bytes.Equal(textOf(earlier), textOf(body))
	})
}

// textOf returns an accepted config without its header.
func textOf(body []byte) []byte {
	_, text, _ := config.CutHeader(body)
	return text
}

// keep records the groups that the next config makes smaller than the last accepted one did, though
// it is not smaller than what the leader of a new term found in its place, or than what the record of the
// group says that it accepts: an earlier leader may have ended before it stored the config. Instances that
// the next config replaces are left aside: the leader can't tell them from the rest of a rotation.
func (t *texts) keep(next *config.Shard, term uint64) {
	b := t.book
	if b.applied == nil {
		return
	}
	before, _ := b.applied.Resolve(b.groups)
	after, _ := next.Resolve(b.groups)
	found := map[fleet.GroupKey]fleet.Group{}
	if t.instead != nil {
		found, _ = t.instead.Resolve(b.groups)
	}
	for key, was := range before {
		is, there := after[key]
		known, seen := found[key]
		r := b.groups[key]
		says := seen && known.Size > is.Size || r.ConfigSize != nil && *r.ConfigSize <= is.Size && r.Epoch < term
		if was.Removed || says || there && is.Size >= was.Size {
			continue
		}
		t.kept[key] = min(was.Size, b.healthy(key, func(i fleet.Instance) bool { return !there || i.Hashes.Infra == is.Hashes.Infra }))
		b.hands.touched[key] = true
		b.promises.sizes[key] = map[int]bool{anySize: true}
	}
}

// release ends what keep recorded of a group. The caller holds the lock.
func (t *texts) release(key fleet.GroupKey) {
	if _, kept := t.kept[key]; kept {
		delete(t.kept, key)
		t.book.rewant()
	}
}

// putText writes config/ or applied/ manually; a nil body removes it.
func (r recorder) putText(key string, body []byte) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if body == nil {
		err = r.Store.Delete(context.Background(), key)
	} else {
		_, err = r.Store.Put(context.Background(), key, body, object.Precondition{})
	}
	if err != nil {
		return fmt.Errorf("change %s by hand: %w", key, err)
	}
	if key == appliedKey() {
		r.book.texts.alter(body)
	} else {
		r.book.texts.wroteConfig(body)
	}
	return nil
}

// putBack writes config/ or applied/ as it was, or as it was some versions before.
func (r recorder) putBack(key string, of func(*texts) [][]byte, before int) error {
	body := r.book.texts.version(of, before)
	if body == nil {
		return nothing("%s has no such version", key)
	}
	return r.putText(key, body)
}

// restoreApplied restores applied/ as a server wrote it last, if there is such a version.
func (r recorder) restoreApplied() error {
	body := r.book.texts.version(acceptedTexts, 0)
	if body == nil || !r.book.texts.isAltered() {
		return nil
	}
	return r.putText(appliedKey(), body)
}

func configTexts(t *texts) [][]byte { return t.configs }

func acceptedTexts(t *texts) [][]byte { return t.accepted }

// alter records a manual change of applied/.
func (t *texts) alter(body []byte) {
	t.book.mu.Lock()
	defer t.book.mu.Unlock()
	all := t.accepted
	t.altered, t.instead = len(all) == 0 || !bytes.Equal(all[len(all)-1], body), nil
	if t.altered && body != nil {
		t.instead, _ = config.ParseAccepted(body)
	}
	t.book.rewant()
}

func (t *texts) isAltered() bool {
	t.book.mu.Lock()
	defer t.book.mu.Unlock()
	return t.altered
}

// wroteConfig records a version of config/.
func (t *texts) wroteConfig(body []byte) {
	t.book.mu.Lock()
	defer t.book.mu.Unlock()
	t.setConfig(body)
}

// setConfig is wroteConfig for a caller that holds the lock.
func (t *texts) setConfig(body []byte) {
	t.configs = append(t.configs, body)
	if shard, err := config.Parse(body); err == nil {
		t.book.static = shard
		t.book.rewant()
	}
}

// tell records that a server told that the config awaits confirmation.
func (t *texts) tell(life string) {
	t.book.mu.Lock()
	defer t.book.mu.Unlock()
	t.told[life] = true
}

// version returns the latest of some texts, or an earlier one; nil if there is none.
func (t *texts) version(of func(*texts) [][]byte, before int) []byte {
	t.book.mu.Lock()
	defer t.book.mu.Unlock()
	all := of(t)
	if before >= len(all) {
		return nil
	}
	return all[len(all)-1-before]
}

func appliedKey() string { return "applied/" + shardID + ".jsonc" }
