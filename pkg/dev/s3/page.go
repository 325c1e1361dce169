package s3

import (
	"strings"

	"github.com/johannesboyne/gofakes3"
)

// cut picks one page of sorted keys, and the marker of the next page, if there is
// one. Keys that share what comes before the next delimiter are one entry, for
// which the first of them stands; a page goes on after the entry that the marker
// names.
func cut(keys []string, prefix gofakes3.Prefix, page gofakes3.ListBucketPage) (picked []string, next string) {
	last := ""
	for _, key := range keys {
		entry, folded := fold(key, prefix)
		if page.HasMarker && entry <= page.Marker || folded && entry == last {
			continue
		}
		if int64(len(picked)) == page.MaxKeys {
			return picked, last
		}
		picked, last = append(picked, key), entry
	}
	return picked, ""
}

// fold returns the entry that stands for key in a listing, and whether that is a
// common prefix.
func fold(key string, prefix gofakes3.Prefix) (entry string, folded bool) {
	if !prefix.HasDelimiter {
		return key, false
	}
	before, _, found := strings.Cut(key[len(prefix.Prefix):], prefix.Delimiter)
	if !found {
		return key, false
	}
	return prefix.Prefix + before + prefix.Delimiter, true
}
