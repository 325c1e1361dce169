package release

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// commit is what of the source goes into what is built.
type commit struct {
	hash, version string
	epoch         string // of the commit, in seconds since 1970
	dirty         bool   // there is more than the commit
}

// tagged is what a release is called. Without build metadata: neither tags of images nor
// labels of Kubernetes can have a plus.
var tagged = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// Version is what is built now: the Tag, or else what git calls the commit, with -dirty
// behind it where there is more than that.
func (b Builder) Version(ctx context.Context) (string, error) {
	from, err := b.commit(ctx)
	return from.version, err
}

// commit asks git what is built.
func (b Builder) commit(ctx context.Context) (commit, error) {
	var answers [4]string
	for i, question := range [][]string{
		{"log", "-1", "--format=%H"},
		{"log", "-1", "--format=%ct"},
		// What is not committed is compiled too, also where git was never told of it.
		{"status", "--porcelain"},
		// The length of a hash would else depend on what the clone holds, and other tags
		// than releases name nothing.
		{"describe", "--tags", "--match=v[0-9]*", "--always", "--abbrev=12"},
	} {
		answer, err := b.run(ctx, nil, "git", question...)
		if err != nil {
			return commit{}, fmt.Errorf("ask what is built: %w", err)
		}
		answers[i] = answer
	}
	from := commit{hash: answers[0], epoch: answers[1], version: answers[3], dirty: answers[2] != ""}
	if b.Tag != "" {
		return b.released(ctx, from)
	}
	if from.dirty {
		from.version += "-dirty"
	}
	return from, nil
}

// released is a commit by the tag that is to be released.
func (b Builder) released(ctx context.Context, from commit) (commit, error) {
	if !tagged.MatchString(b.Tag) {
		return commit{}, fmt.Errorf("release %q: want v1.2.3, or v1.2.3-rc.1", b.Tag)
	}
	here, err := b.run(ctx, nil, "git", "tag", "--points-at", "HEAD")
	if err != nil {
		return commit{}, fmt.Errorf("release %s: %w", b.Tag, err)
	}
	if !slices.Contains(strings.Fields(here), b.Tag) {
		return commit{}, fmt.Errorf("release %s: that tag is not of the commit %s", b.Tag, from.hash)
	}
	if from.dirty {
		return commit{}, fmt.Errorf("release %s: %w", b.Tag, errDirty)
	}
	from.version = b.Tag
	return from, nil
}

// errDirty is for what would be published from a tree that no commit names.
var errDirty = errors.New("the tree has changes that are not committed")
