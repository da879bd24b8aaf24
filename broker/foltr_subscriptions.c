/* A plugin of Mosquitto (2.0 and later) that grants the subscriptions of a federation and refuses all others.
 *
 * Mosquitto grants every subscription, also beside an access list, and each level of a filter takes memory: so one
 * user could take all of it. The configuration names what may be subscribed to, in options that are all called
 * `subscribe`, each a user and a filter (broker/subscriptions.py writes them):
 *
 *     plugin_opt_subscribe * foltr/v1/FEDERATION/clients/%u/inbox
 *
 * The user is a name, or the beginning of names that ends with `*`. In the filter `%u` is the user's name, `%n` what
 * follows that beginning, `%d` a number from 0 to 999 and `%g` the name of a group; `#` at the end is any filter below.
 * All else is compared as it is. So a user may have a bounded number of subscriptions of bounded length.
 *
 * Mosquitto judges a packet to its end before it serves anybody else, and a packet holds 150,000 short filters. So a
 * client that is refused many at once is disconnected.
 *
 * Who gets in, and what is read and written, the plugin leaves to Mosquitto. It keeps nothing of any user and reads no
 * file, so there is nothing to tell it when users come and go. It needs no header but the compiler's, and of libc only
 * what Mosquitto has loaded already: so it is built by one command, and is the same for glibc and musl.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef FOLTR_SOURCE
#define FOLTR_SOURCE "unknown"
#endif

/* By it a file is known to be built of this source. */
__attribute__((used)) const char foltr_subscriptions[] = "foltr-subscriptions:" FOLTR_SOURCE;

/* --- of mosquitto_plugin.h and mosquitto_broker.h, as they are since 2.0 ----------------------------------------- */

enum { PLUGIN_VERSION = 5, EVENT_ACL_CHECK = 2, EVENT_DISCONNECT = 10, ACL_SUBSCRIBE = 4 };
enum { SUCCESS = 0, PROTOCOL = 2, INVALID = 3, ACL_DENIED = 12, DEFER = 17 };
enum { LOG_ERR = 8 };

struct acl_check {
	void *future;
	void *client;
	const char *topic;
	const void *payload;
	void *properties;
	int access;
	uint32_t payloadlen;
	uint8_t qos;
	bool retain;
	void *future2[4];
};

struct disconnected {
	void *future;
	void *client;
	int reason;
	void *future2[4];
};

struct option {
	char *key;
	char *value;
};

extern int mosquitto_callback_register(
	void *id, int event, int (*callback)(int, void *, void *), const void *event_data, void *userdata);
extern int mosquitto_callback_unregister(
	void *id, int event, int (*callback)(int, void *, void *), const void *event_data);
extern const char *mosquitto_client_username(const void *client);
extern void mosquitto_log_printf(int level, const char *format, ...);
extern void *mosquitto_calloc(size_t n, size_t size);
extern char *mosquitto_strdup(const char *text);
extern void mosquitto_free(void *memory);
extern size_t strlen(const char *text);
extern int strcmp(const char *one, const char *other);
extern int strncmp(const char *one, const char *other, size_t n);
extern char *strchr(const char *text, int character);

/* --- whether a filter is granted --------------------------------------------------------------------------------- */

enum { LONGEST_GROUP = 64, LONGEST_NUMBER = 3 };

static size_t length_of_level(const char *filter)
{
	size_t n = 0;
	while(filter[n] && filter[n] != '/') n++;
	return n;
}

static bool is_number(const char *level, size_t n)
{
	if(n < 1 || n > LONGEST_NUMBER || (n > 1 && level[0] == '0')) return false;
	for(size_t i = 0; i < n; i++){
		if(level[i] < '0' || level[i] > '9') return false;
	}
	return true;
}

static bool is_group(const char *level, size_t n)
{
	if(n < 1 || n > LONGEST_GROUP) return false;
	for(size_t i = 0; i < n; i++){
		if(level[i] == '+' || level[i] == '#') return false;
	}
	return true;
}

static bool is_level(const char *expected, size_t n_expected, const char *level, size_t n)
{
	return n == n_expected && !strncmp(expected, level, n);
}

static bool matches(const char *rule, const char *filter, const char *user, const char *rest_of_user)
{
	while(true){
		size_t n_rule = length_of_level(rule), n = length_of_level(filter);
		bool same;

		if(is_level("#", 1, rule, n_rule)) return true;
		if(is_level("%u", 2, rule, n_rule)) same = is_level(user, strlen(user), filter, n);
		else if(is_level("%n", 2, rule, n_rule)) same = n > 0 && is_level(rest_of_user, strlen(rest_of_user), filter, n);
		else if(is_level("%d", 2, rule, n_rule)) same = is_number(filter, n);
		else if(is_level("%g", 2, rule, n_rule)) same = is_group(filter, n);
		else same = is_level(rule, n_rule, filter, n);
		if(!same) return false;

		rule += n_rule;
		filter += n;
		if(!*rule || !*filter) return *rule == *filter;
		rule++;
		filter++;
	}
}

/* Whether one rule, `USER FILTER`, grants a filter to a user. Exported: its tests call it without a broker. */
bool foltr_rule_grants(const char *rule, const char *user, const char *filter)
{
	const char *space = strchr(rule, ' ');
	if(!space || !user || !*user || strchr(user, '/') || strchr(user, '+') || strchr(user, '#')) return false;

	size_t n = (size_t)(space - rule);
	bool is_beginning = n > 0 && space[-1] == '*';
	if(is_beginning) n--;
	if(strncmp(rule, user, n) || (!is_beginning && user[n])) return false;
	return matches(space + 1, filter, user, user + n);
}

/* --- what Mosquitto calls ---------------------------------------------------------------------------------------- */

/* So many a client may be refused while nobody else is served; `foltr doctor` is refused one. */
enum { MOST_REFUSED = 100 };

static char **rules;
static int n_rules;
static void *plugin_id;

/* Whose filter was refused last, to compare and for nothing else, and how many since anybody else was served. */
static const void *refused_client;
static int n_refused;

static int check(int event, void *event_data, void *userdata)
{
	const struct acl_check *asked = event_data;
	(void)event;
	(void)userdata;

	if(asked->client != refused_client) n_refused = 0;
	if(asked->access != ACL_SUBSCRIBE) return DEFER;
	const char *user = mosquitto_client_username(asked->client);
	for(int i = 0; i < n_rules; i++){
		if(foltr_rule_grants(rules[i], user, asked->topic)) return DEFER;
	}
	refused_client = asked->client;
	/* Mosquitto ends the connection for an error. */
	return ++n_refused <= MOST_REFUSED ? ACL_DENIED : PROTOCOL;
}

/* The next client may be at the same address, and is refused nothing for this one. */
static int forget(int event, void *event_data, void *userdata)
{
	const struct disconnected *left = event_data;
	(void)event;
	(void)userdata;

	if(left->client == refused_client) refused_client = NULL;
	return SUCCESS;
}

int mosquitto_plugin_version(int n_supported, const int *supported)
{
	for(int i = 0; i < n_supported; i++){
		if(supported[i] == PLUGIN_VERSION) return PLUGIN_VERSION;
	}
	return -1;
}

int mosquitto_plugin_cleanup(void *userdata, const struct option *options, int n)
{
	(void)userdata;
	(void)options;
	(void)n;
	mosquitto_callback_unregister(plugin_id, EVENT_ACL_CHECK, check, NULL);
	mosquitto_callback_unregister(plugin_id, EVENT_DISCONNECT, forget, NULL);
	while(n_rules) mosquitto_free(rules[--n_rules]);
	mosquitto_free(rules);
	rules = NULL;
	return SUCCESS;
}

/* Mosquitto does not start where this fails. */
int mosquitto_plugin_init(void *id, void **userdata, const struct option *options, int n)
{
	(void)userdata;
	rules = n > 0 ? mosquitto_calloc((size_t)n, sizeof(*rules)) : NULL;
	if(!rules){
		mosquitto_log_printf(LOG_ERR, "foltr_subscriptions: no plugin_opt_subscribe, or no memory");
		return INVALID;
	}
	for(int i = 0; i < n; i++){
		if(strcmp(options[i].key, "subscribe") || !strchr(options[i].value, ' ')){
			mosquitto_log_printf(LOG_ERR, "foltr_subscriptions: plugin_opt_%s %s is not `plugin_opt_subscribe USER FILTER`",
				options[i].key, options[i].value);
			return INVALID;
		}
		rules[i] = mosquitto_strdup(options[i].value);
		if(!rules[i]) return INVALID;
		n_rules++;
	}
	plugin_id = id;
	int failure = mosquitto_callback_register(id, EVENT_ACL_CHECK, check, NULL, NULL);
	return failure ? failure : mosquitto_callback_register(id, EVENT_DISCONNECT, forget, NULL, NULL);
}
