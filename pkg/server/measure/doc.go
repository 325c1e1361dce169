// Package measure has the metrics of a server: what their names, labels and help are, and where
// their values come from. State is read at each scrape; calls to object storage and the provider
// are measured by wrappers of these ports, and replacements by what the term reports.
//
// No metric has a label with the id of an instance. Names of groups come from outside, so at
// most MaxGroups groups have series of their own; the sums of all others are under the group
// Others.
package measure
