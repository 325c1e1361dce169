package s3

import "strings"

// paginate returns one page of sorted keys, and the marker of the next page; empty: there is none.
// Keys with the same common prefix are one entry, and the page has the first of them.
func (l listing) paginate(keys []string) (picked []string, next string) {
	last := ""
	for _, key := range keys {
		entry, folded := l.fold(key)
		if l.after != "" && entry <= l.after || folded && entry == last {
			continue
		}
		if len(picked) == l.max {
			return picked, last
		}
		picked, last = append(picked, key), entry
	}
	return picked, ""
}

// fold returns the listing's entry for key, and whether that is a common prefix.
func (l listing) fold(key string) (entry string, folded bool) {
	if l.delimiter == "" {
		return key, false
	}
	before, _, found := strings.Cut(key[len(l.prefix):], l.delimiter)
	if !found {
		return key, false
	}
	return l.prefix + before + l.delimiter, true
}
