package files

import (
	"fmt"
	"regexp"
	"strings"
)

// The bounds of a set of files.
const (
	MaxFiles    = 256     // files of a set
	MaxFileSize = 1 << 20 // bytes of one file
	MaxSetSize  = 4 << 20 // bytes of all files that are sent for one commit
	MaxKeys     = 64      // private keys that an instance is asked for
)

// hashFile has no extension that a file of a set may have.
const hashFile = "config.hash"

var (
	namePattern    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,120}\.(crt|key|pub|json|env|conf)$`)
	keyNamePattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]{0,126}[A-Za-z0-9_])?$`)
	hashPattern    = regexp.MustCompile(`^[A-Za-z0-9._:+/=-]{1,128}$`)
)

// CheckName reports why name can't be the name of a file that an instance
// receives; nil when it can: a plain base name of at most 126 bytes, which no
// file system takes for a path, with an extension that says how CheckContent
// judges the content.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%.80q is no file name: want a plain name with the extension .crt, .key, .pub, .json, .env or .conf", name)
	}
	return nil
}

// CheckKeyName reports why name can't be the name of a private key that an
// instance makes; nil when it can.
func CheckKeyName(name string) error {
	if !keyNamePattern.MatchString(name) {
		return fmt.Errorf("%.80q is no key name: want a plain name without an extension, such as kubelet", name)
	}
	return nil
}

// CheckNames reports why names can't be those of one set; nil when they can.
// Two that differ by case only would be one file on some file systems.
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
			return fmt.Errorf("the files %s and %s: want names that differ by more than case", other, name)
		}
		seen[folded] = name
	}
	return nil
}

func checkHash(hash string) error {
	if !hashPattern.MatchString(hash) {
		return fmt.Errorf("%.80q is no config hash: want at most 128 letters, digits and ._:+/=-", hash)
	}
	return nil
}
