// Package drain empties nodes before their instances go. For each instance that a shard
// drains, its Node is cordoned and its pods are evicted, as their disruption budgets
// allow; when none is left the shard is told, and removes the instance. A shard waits
// no longer than the drain's delete_at, and neither does this.
package drain
