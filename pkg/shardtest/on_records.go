package shardtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/object"
)

// doGroupLost removes the object of a group manually.
func doGroupLost(s *Shard, a args) error { return mistake(s, a.words[0], nil) }

// doGroupSpoilt replaces it with an invalid text.
func doGroupSpoilt(s *Shard, a args) error { return mistake(s, a.words[0], []byte(`{ "size": `)) }

// doGroupOld replaces it with an earlier version.
func doGroupOld(s *Shard, a args) error {
	body := s.book.hands.latest(defaultGroup(a.words[0]), a.count)
	if body == nil {
		return nothing("group %s has no such version", a.words[0])
	}
	return mistake(s, a.words[0], body)
}

// mistake changes the object of a group manually; a nil body removes it.
func mistake(s *Shard, group string, body []byte) error {
	key := defaultGroup(group)
	is, err := s.mem.Get(context.Background(), groupObject(key))
	if errors.Is(err, object.ErrNotFound) {
		return nothing("there is no record of group %s", group)
	}
	if err != nil {
		return fmt.Errorf("get the record of group %s: %w", key, err)
	}
	s.lost[key] = is.Body
	return s.bucket.byHand(key, body)
}

// doGroupBack restores the object that was changed manually last, unconditionally.
func doGroupBack(s *Shard, a args) error {
	body := s.lost[defaultGroup(a.words[0])]
	if body == nil {
		return nothing("the record of group %s was changed by no hand", a.words[0])
	}
	return s.bucket.byHand(defaultGroup(a.words[0]), body)
}

// mend restores manually changed objects of groups as the servers wrote them last.
func mend(s *Shard) error {
	for _, key := range s.book.hands.mistaken() {
		if err := s.bucket.byHand(key, s.book.hands.latest(key, 0)); err != nil {
			return err
		}
	}
	return nil
}

// sayAgain sets the sizes of groups again that are held, or may be, which ends that.
func sayAgain(s *Shard) {
	for _, key := range s.book.hands.held() {
		size := s.book.hands.meant(key)
		if a := (args{words: []string{key.Name}, count: size}); size == absent {
			_ = doUngroup(s, a)
		} else {
			_ = doGroup(s, a)
		}
	}
}
