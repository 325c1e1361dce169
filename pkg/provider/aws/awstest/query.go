package awstest

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxFilterValues is the maximum number of values of a filter.
const maxFilterValues = 200

// describeParams are the parameters of all Describe actions, and more.
func describeParams(more ...string) []string {
	return append(more, "Filter.N.Name", "Filter.N.Value.N", "MaxResults", "NextToken")
}

// limits are the bounds of MaxResults.
type limits struct{ from, to int }

// query is what a Describe action asks for.
type query struct {
	ids     []string
	filters []filter
	page    int // 0: all
	skip    int
}

type filter struct {
	name   string
	values []string
}

// readQuery reads a query. ids names the list of requested ids, filters are the supported filters.
func readQuery(p *params, ids string, bounds limits, filters ...string) (q query, err error) {
	if q.ids, err = p.list(ids); err != nil {
		return q, err
	}
	if q.filters, err = readFilters(p, filters); err != nil {
		return q, err
	}
	page, paged, err := p.number("MaxResults")
	switch {
	case err != nil:
		return q, err
	case paged && len(q.ids) > 0:
		return q, bad("InvalidParameterCombination", "The parameter %s cannot be used with the parameter maxResults", ids)
	case paged && (page < bounds.from || page > bounds.to):
		return q, bad("InvalidParameterValue", "Value (%d) for parameter maxResults is invalid. Expecting a value between %d and %d.",
			page, bounds.from, bounds.to)
	}
	q.page = page
	if p.has("NextToken") {
		q.skip, err = readToken(p.get("NextToken"))
	}
	return q, err
}

func readFilters(p *params, names []string) ([]filter, error) {
	count, err := p.count("Filter")
	if err != nil {
		return nil, err
	}
	var out []filter
	for n := range count {
		at := "Filter." + strconv.Itoa(n+1)
		f := filter{name: p.get(at + ".Name")}
		if f.values, err = p.list(at + ".Value"); err != nil {
			return nil, err
		}
		switch {
		case !slices.ContainsFunc(names, f.isNamed):
			return nil, bad("InvalidParameterValue", "The filter '%.80s' is invalid", f.name)
		case len(f.values) == 0:
			return nil, bad("InvalidParameterValue", "The filter '%.80s' has no value", f.name)
		case len(f.values) > maxFilterValues:
			return nil, bad("FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d", maxFilterValues)
		}
		out = append(out, f)
	}
	return out, nil
}

// isNamed reports whether the filter has this name. A name that ends in a colon, as tag: does,
// stands for all filters below it.
func (f filter) isNamed(name string) bool {
	rest, below := strings.CutPrefix(f.name, name)
	return below && strings.HasSuffix(name, ":") == (rest != "")
}

// matches reports whether a resource with this id and these properties is selected: each filter
// matches one of its values.
func (q query) matches(id string, properties map[string][]string) bool {
	if len(q.ids) > 0 && !slices.Contains(q.ids, id) {
		return false
	}
	for _, f := range q.filters {
		if !slices.ContainsFunc(properties[f.name], func(value string) bool {
			return slices.ContainsFunc(f.values, func(pattern string) bool { return matchWildcards([]rune(pattern), []rune(value)) })
		}) {
			return false
		}
	}
	return true
}

// matchWildcards reports whether value matches pattern, where * stands for any characters, ? for
// one, and a backslash escapes the next character.
func matchWildcards(pattern, value []rune) bool {
	star, from := -1, 0
	at, v := 0, 0
	for v < len(value) {
		step, ok := matchOne(pattern[at:], value[v])
		switch {
		case at < len(pattern) && pattern[at] == '*':
			star, from = at, v
			at++
		case ok:
			at += step
			v++
		case star >= 0:
			from++
			at, v = star+1, from
		default:
			return false
		}
	}
	for at < len(pattern) && pattern[at] == '*' {
		at++
	}
	return at == len(pattern)
}

// matchOne reports whether the pattern's first element matches r, and its length.
func matchOne(pattern []rune, r rune) (int, bool) {
	switch {
	case len(pattern) == 0:
		return 0, false
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2, pattern[1] == r
	default:
		return 1, pattern[0] == '?' || pattern[0] == r
	}
}

// paginate returns the page that a query selects, and the token of the next one.
func paginate[T any](q query, all []T) (page []T, next string) {
	all = all[min(q.skip, len(all)):]
	if q.page == 0 || len(all) <= q.page {
		return all, ""
	}
	return all[:q.page], token(q.skip + q.page)
}

// tokenPrefix is in page tokens, which are opaque to callers.
const tokenPrefix = "skip:"

func token(skip int) string {
	return base64.StdEncoding.EncodeToString(fmt.Append(nil, tokenPrefix, skip))
}

func readToken(text string) (int, error) {
	plain, err := base64.StdEncoding.DecodeString(text)
	rest, ok := strings.CutPrefix(string(plain), tokenPrefix)
	n, notNumber := strconv.Atoi(rest)
	if err != nil || !ok || notNumber != nil || n < 0 {
		return 0, bad("InvalidNextToken", "The specified NextToken is not valid: %.80s", text)
	}
	return n, nil
}
