package dir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/nstance/nstance/pkg/object"
)

// A version's file begins with one line of fixed length: a magic word, the nonce of this version
// and that of its predecessor (dashes if none). The body follows.
const (
	magic     = "nstance-object-1"
	nonceSize = 26 // of crypto/rand.Text
	headSize  = len(magic) + 1 + nonceSize + 1 + nonceSize + 1
)

// version is one version of an object. Number 0 means that there is no object.
type version struct {
	number uint64
	nonce  string // makes the etag unique: numbers restart after a deletion
	prev   string
	file   *os.File // positioned at the body; nil if not opened
}

func (v version) name() string { return fmt.Sprintf("%016x", v.number) }

func (v version) etag() object.ETag {
	if v.number == 0 {
		return ""
	}
	return object.ETag(strconv.FormatUint(v.number, 10) + "-" + v.nonce)
}

func (v version) header() []byte {
	prev := v.prev
	if prev == "" {
		prev = strings.Repeat("-", nonceSize)
	}
	return []byte(magic + " " + v.nonce + " " + prev + "\n")
}

func readVersion(file *os.File, number uint64) (version, error) {
	head := make([]byte, headSize)
	if _, err := io.ReadFull(file, head); err != nil {
		return version{}, err
	}
	nonce, prev, err := parseHeader(head)
	if err != nil {
		return version{}, err
	}
	return version{number: number, nonce: nonce, prev: prev, file: file}, nil
}

func parseHeader(head []byte) (nonce, prev string, err error) {
	line, whole := bytes.CutSuffix(head, []byte("\n"))
	fields := bytes.Split(line, []byte(" "))
	if !whole || len(fields) != 3 || string(fields[0]) != magic || len(fields[1]) != nonceSize || len(fields[2]) != nonceSize {
		return "", "", errors.New("not an object's file: wrong header")
	}
	return string(fields[1]), string(fields[2]), nil
}

func (v version) body() ([]byte, error) { return io.ReadAll(v.file) }

func (v version) info(key string) object.Info {
	info := object.Info{Key: key, ETag: v.etag()}
	if stat, err := v.file.Stat(); err == nil { // the file is open, so it can't be absent
		info.Size = stat.Size() - int64(headSize)
		info.ModTime = stat.ModTime()
	}
	return info
}

// numbersOf returns the versions in a sorted listing.
func numbersOf(names []string) []uint64 {
	var numbers []uint64
	for _, name := range names {
		n, err := strconv.ParseUint(name, 16, 64)
		if err == nil && n > 0 && (version{number: n}).name() == name {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
