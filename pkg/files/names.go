package files

import (
	"fmt"
	"regexp"
	"strings"
)

// Limits of a set of files.
const (
	MaxFiles    = 256     // files per set
	MaxFileSize = 1 << 20 // bytes per file
	MaxSetSize  = 4 << 20 // bytes of all files sent for one commit
	MaxKeys     = 64      // private keys per instance
)

// hashFile has an extension that no file of a set may have.
const hashFile = "config.hash"

var (
	namePattern    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,120}\.(crt|key|pub|json|env|conf)$`)
	keyNamePattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_])?$`)
	hashPattern    = regexp.MustCompile(`^[A-Za-z0-9._:+/=-]{1,128}$`)
)

// CheckName returns an error unless name is valid for a received file: a plain base name of at
// most 126 bytes, which no file system treats as a path, with an extension that determines how
// CheckContent checks the content.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%.80q is not a valid file name: want a plain name with the extension .crt, .key, .pub, .json, .env or .conf", name)
	}
	return nil
}

// CheckKeyName returns an error unless name is valid for a private key of an instance.
func CheckKeyName(name string) error {
	if !keyNamePattern.MatchString(name) {
		return fmt.Errorf("%.80q is not a valid key name: want a plain name without an extension, such as kubelet", name)
	}
	return nil
}

// CheckNames returns an error unless the names are valid for one set. Two names that differ
// only in case are refused, since they would share a file on some file systems.
func CheckNames(names []string) error {
	if len(names) > MaxFiles {
		return fmt.Errorf("%d files: at most %d are allowed", len(names), MaxFiles)
	}
	seen := make(map[string]string, len(names))
	for _, name := range names {
		if err := CheckName(name); err != nil {
			return err
		}
		folded := strings.ToLower(name)
		if other, ok := seen[folded]; ok {
			return fmt.Errorf("files %s and %s: names must differ by more than case", other, name)
		}
		seen[folded] = name
	}
	return nil
}

func checkHash(hash string) error {
	if !hashPattern.MatchString(hash) {
		return fmt.Errorf("%.80q is not a valid config hash: want at most 128 letters, digits and ._:+/=-", hash)
	}
	return nil
}
