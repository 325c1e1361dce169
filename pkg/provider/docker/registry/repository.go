package registry

import (
	"errors"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Repository returns the canonical repository of an image, without tag and digest. It includes
// the registry, if the name has one; a name without one is an image of the engine, not a short
// form.
func Repository(image string) (string, error) {
	if Hosted(image) {
		ref, err := parse(image)
		if err != nil {
			return "", err
		}
		return ref.Context().Name(), nil
	}
	repository, _, _ := strings.Cut(image, "@")
	if n := strings.LastIndexByte(repository, ':'); n > strings.LastIndexByte(repository, '/') {
		repository = repository[:n]
	}
	if repository == "" {
		return "", errors.New("has no repository")
	}
	return repository, nil
}

// everything at the end of a pattern matches all repositories below the prefix.
const everything = "/**"

// CheckPattern returns an error if a text is not a valid repository pattern for Match.
func CheckPattern(pattern string) error {
	before, below, hosted := cutPattern(pattern)
	host, _, _ := strings.Cut(before, "/")
	switch {
	case strings.ContainsAny(before, `[]?\`) || strings.Contains(before, "**"):
		return errors.New("want * for any characters except a slash, and /** at the end for everything below")
	case hosted && strings.Contains(host, "*"):
		return errors.New("has a star in the registry: want the full name")
	}
	plain := strings.ReplaceAll(before, "*", "xx") // a repository has at least two characters
	if below {
		plain += "/xx"
	}
	repository, err := Repository(plain)
	if err == nil && repository != canonical(plain, false) {
		err = errors.New("has a tag or a digest: want only the repository")
	}
	return err
}

// cutPattern splits a pattern. below is set for a trailing /**, hosted if the pattern has a
// registry.
func cutPattern(pattern string) (before string, below, hosted bool) {
	before, below = strings.CutSuffix(pattern, everything)
	return before, below, Hosted(before) || below && Hosted(before+"/xx")
}

// Match reports whether a pattern matches the repository of an image: * matches any characters
// except a slash, and a trailing /** all repositories below. A pattern without a registry
// matches only images of the engine. An invalid image name matches no pattern.
func Match(pattern, image string) bool {
	repository, err := Repository(image)
	before, below, hosted := cutPattern(pattern)
	if err != nil || CheckPattern(pattern) != nil || hosted != Hosted(image) {
		return false
	}
	before = canonical(before, below)
	if below {
		parts, depth := strings.Split(repository, "/"), strings.Count(before, "/")+1
		if len(parts) <= depth {
			return false
		}
		repository = strings.Join(parts[:depth], "/")
	}
	ok, err := path.Match(before, repository)
	return ok && err == nil
}

// canonical returns a repository or folder in the form of Repository: Docker Hub has several
// names, and its official images have no folder.
func canonical(repository string, folder bool) string {
	host, rest, found := strings.Cut(repository, "/")
	switch {
	case host != "docker.io" && host != name.DefaultRegistry:
		return repository
	case !found:
		return name.DefaultRegistry
	case !folder && !strings.Contains(rest, "/"):
		rest = "library/" + rest
	}
	return name.DefaultRegistry + "/" + rest
}

// sameRepository reports whether a claimed image name, a repository or a reference, has the
// image's own repository.
func sameRepository(said string, image name.Digest) bool {
	for _, scheme := range []string{"oci://", "docker://"} {
		said = strings.TrimPrefix(said, scheme)
	}
	repository, err := Repository(said)
	return err == nil && Hosted(said) && repository == image.Context().Name()
}
